"""The plot of commits against the references that are there already."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl

from bench.harness import ROOT, say

mpl.use("Agg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.commit_appends import Point

PLOT = ROOT / "bench" / "commit_scale.png"
_LINES = (
    ("ours", "ours", "#0b6e4f", "o-"),
    ("durable", "ours, fsync", "#7fb69e", "o--"),
    ("peer", "icechunk, best splitting", "#c8553d", "s-"),
    ("default", "icechunk, default", "#8d99ae", "^-"),
)


def plot(points: Sequence[Point], *, quick: bool) -> None:
    """A panel for each spec; a quick run leaves the stored plot alone."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for spec, panel in zip((1, 2), panels, strict=True):
        mine = [point for point in points if point.spec == spec]
        for name, label, color, style in _LINES:
            heights = [getattr(point, name) for point in mine]
            panel.loglog([point.refs for point in mine], heights, style, color=color, label=label)
        panel.set(title=f"spec v{spec}", xlabel="references in the archive")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("commit of 100 appended chunks, ms")
    panels[0].legend(frameon=False)
    if quick:
        say("the plot is that of a full run")
    else:
        figure.savefig(PLOT, dpi=120)
    plt.close(figure)
