"""A picture of what is in the repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    import xarray as xr

    from demo.runs import Story

_SHOWN = 3


def plot(path: Path, found: xr.Dataset, rows: dict[int, int], story: Story) -> None:
    """All readings, some of them as lines, and the rows of each batch."""
    figure, axes = plt.subplots(
        3, 1, figsize=(11, 10), height_ratios=[3, 2, 1.4], layout="constrained"
    )
    _plot_all(figure, axes[0], found)
    _plot_lines(axes[1], found)
    _plot_batches(axes[2], rows, story)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_all(figure: Any, axes: Any, found: xr.Dataset) -> None:
    temp = found["temp"].sortby("station").transpose("station", "time")
    mesh = axes.pcolormesh(
        found["time"].to_numpy(), range(found.sizes["station"]), temp.to_numpy(), shading="nearest"
    )
    figure.colorbar(mesh, ax=axes, label="temperature in °C")
    axes.set_title("All readings: white where a station had not begun, or its reading was lost")
    axes.set_ylabel("station")


def _plot_lines(axes: Any, found: xr.Dataset) -> None:
    names = sorted(found["station"].to_numpy())
    for name in names[:: max(len(names) // _SHOWN, 1)][:_SHOWN]:
        line = found["temp"].sel(station=name)
        axes.plot(found["time"].to_numpy(), line.to_numpy(), label=str(name), linewidth=0.9)
    axes.legend(loc="upper right")
    axes.set_ylabel("temperature in °C")


def _plot_batches(axes: Any, rows: dict[int, int], story: Story) -> None:
    colors = ["tab:red" if batch in story.kills else "tab:blue" for batch in rows]
    axes.bar(list(rows), list(rows.values()), color=colors)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("batch (red: the driver was killed in it)")
    axes.set_ylabel("rows")
