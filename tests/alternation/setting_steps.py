"""Steps on what stands beside the snapshots and the refs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.alternation.machine import LIBRARY, SETTINGS, Acting
from tests.alternation.places import LIBRARIES, apply_settings

_V2_STEPS = ("configure", "set_metadata", "pause", "set_flag")


class SettingSteps(Acting):
    @rule(step=st.sampled_from(_V2_STEPS), library=LIBRARY, data=st.data())
    def administer(self, step: str, library: str, data: Any) -> None:
        step = step if self.history.spec_version > 1 else "configure"
        self.ran(step, library)
        getattr(self, step)(library, data)
        self.check("main")

    def configure(self, library: str, data: Any) -> None:
        settings = data.draw(SETTINGS)
        repository = self.place.fresh(library)
        config = repository.config
        apply_settings(LIBRARIES[library], config, settings)
        repository.reopen(config=config).save_config()
        self.history.threshold = settings.threshold
        self.place.reopen()

    def set_metadata(self, library: str, data: Any) -> None:
        repository = self.place.repository(library, fresh=data.draw(st.booleans()))
        number = data.draw(st.integers(0, 9))
        new = {f"item {number}": [number, {"é": None}], "last": number}
        if data.draw(st.booleans()):
            repository.set_metadata(new)
            self.history.metadata = new
        else:
            repository.update_metadata(new)
            self.history.metadata = self.history.metadata | new

    def pause(self, library: str, data: Any) -> None:
        """Nobody writes to a repository that one of them made read-only."""
        repository = self.place.repository(library, fresh=False)
        reason = data.draw(st.sampled_from((None, "", "é why")))
        repository.set_status(_status(library, "read_only", reason))
        self.refused_alike("writable_session", "main")
        self.refused_alike("set_metadata", {})
        self.refused_alike("create_tag", "never", self.history.branches["main"])
        self.check("main")
        other = data.draw(LIBRARY)
        repository = self.place.repository(other, fresh=False)
        repository.set_status(_status(other, "online", None))

    def set_flag(self, library: str, data: Any) -> None:
        flag = data.draw(st.sampled_from(("create_tag", "delete_tag", "move_node")))
        setting = data.draw(st.sampled_from((True, None, False)))
        self.place.repository(library, fresh=False).set_feature_flag(flag, setting)
        if setting is False:
            self.history.disabled.add(flag)
        else:
            self.history.disabled.discard(flag)


def _status(library: str, availability: str, reason: str | None) -> Any:
    ic = LIBRARIES[library]
    known = getattr(ic.RepoAvailability, availability)
    return ic.RepoStatus(known, limited_availability_reason=reason)
