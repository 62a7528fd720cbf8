"""Steps on refs and on what stands beside the snapshots."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.alternation.machine import LIBRARY, SETTINGS, Acting
from tests.alternation.places import LIBRARIES, Settings, apply_settings
from tests.oracle.outcomes import is_failure, outcome

# What local storage has to escape, 2.3.0 lists as it is escaped on spec v1.
_NAMES = ("b", "b.1", "b 2", "b-3", "(4)")
_NAMES_V2 = (*_NAMES, "é", "a/b", "%2F")
_BRANCHES_AT_MOST = 4


class RefSteps(Acting):
    @precondition(lambda self: len(self.history.branches) < _BRANCHES_AT_MOST)
    @rule(library=LIBRARY, fresh=st.booleans(), data=st.data())
    def create_branch(self, library: str, fresh: bool, data: Any) -> None:
        name = self.draw_name(data)
        target = self.draw_commit(data)
        call = self.place.repository(library, fresh=fresh).create_branch
        self.ran("create_branch", library)
        if name in self.history.branches:
            self.refused_alike("create_branch", name, target)
        else:
            call(name, target)
            self.history.branches[name] = target
        self.check(name)

    @precondition(lambda self: len(self.history.branches) > 1)
    @rule(library=LIBRARY, fresh=st.booleans(), data=st.data())
    def delete_branch(self, library: str, fresh: bool, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.history.branches.keys() - {"main"})))
        self.ran("delete_branch", library)
        self.place.repository(library, fresh=fresh).delete_branch(name)
        del self.history.branches[name]
        self.check("main")

    @rule(library=LIBRARY, fresh=st.booleans(), guarded=st.booleans(), data=st.data())
    def reset_branch(self, library: str, fresh: bool, guarded: bool, data: Any) -> None:
        branch, target = self.draw_branch(data), self.draw_commit(data)
        tip = self.history.branches[branch]
        self.ran("reset_branch", library)
        reset = self.place.repository(library, fresh=fresh).reset_branch
        reset(branch, target, from_snapshot_id=tip if guarded else None)
        self.history.branches[branch] = target
        self.check(branch)

    @rule(library=LIBRARY, fresh=st.booleans(), data=st.data())
    def create_tag(self, library: str, fresh: bool, data: Any) -> None:
        name, target = self.draw_name(data), self.draw_commit(data)
        self.ran("create_tag", library)
        if name in self.history.used_tags or "create_tag" in self.history.disabled:
            self.refused_alike("create_tag", name, target)
        else:
            self.place.repository(library, fresh=fresh).create_tag(name, target)
            self.history.tags[name] = target
            self.history.used_tags.add(name)
        self.check("main")

    @precondition(lambda self: self.history.tags)
    @rule(library=LIBRARY, fresh=st.booleans(), data=st.data())
    def delete_tag(self, library: str, fresh: bool, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.history.tags)))
        self.ran("delete_tag", library)
        if "delete_tag" in self.history.disabled:
            self.refused_alike("delete_tag", name)
        else:
            self.place.repository(library, fresh=fresh).delete_tag(name)
            del self.history.tags[name]
        self.check("main")

    @rule(library=LIBRARY, settings=SETTINGS)
    def configure(self, library: str, settings: Settings) -> None:
        repository = self.place.fresh(library)
        config = repository.config
        apply_settings(LIBRARIES[library], config, settings)
        self.ran("configure", library)
        repository.reopen(config=config).save_config()
        self.history.threshold = settings.threshold
        self.place.reopen()
        self.check("main")

    @precondition(lambda self: self.history.spec_version > 1)
    @rule(library=LIBRARY, fresh=st.booleans(), replace=st.booleans(), number=st.integers(0, 9))
    def set_metadata(self, library: str, fresh: bool, replace: bool, number: int) -> None:
        repository = self.place.repository(library, fresh=fresh)
        new = {f"item {number}": [number, {"é": None}], "last": number}
        self.ran("set_metadata", library)
        if replace:
            repository.set_metadata(new)
            self.history.metadata = new
        else:
            repository.update_metadata(new)
            self.history.metadata = self.history.metadata | new
        self.check("main")

    @precondition(lambda self: self.history.spec_version > 1)
    @rule(library=LIBRARY, other=LIBRARY, reason=st.sampled_from((None, "", "é why")))
    def pause(self, library: str, other: str, reason: str | None) -> None:
        """Nobody writes to a repository that one of them made read-only."""
        self.ran("pause", library)
        repository = self.place.repository(library, fresh=False)
        repository.set_status(_status(library, "read_only", reason))
        self.refused_alike("writable_session", "main")
        self.refused_alike("set_metadata", {})
        self.refused_alike("create_tag", "never", self.history.branches["main"])
        self.check("main")
        repository = self.place.repository(other, fresh=False)
        repository.set_status(_status(other, "online", None))
        self.check("main")

    @precondition(lambda self: self.history.spec_version > 1)
    @rule(
        library=LIBRARY,
        flag=st.sampled_from(("create_tag", "delete_tag", "move_node")),
        setting=st.sampled_from((True, False, None)),
    )
    def set_flag(self, library: str, flag: str, setting: bool | None) -> None:
        self.ran("set_flag", library)
        self.place.repository(library, fresh=False).set_feature_flag(flag, setting)
        if setting is False:
            self.history.disabled.add(flag)
        else:
            self.history.disabled.discard(flag)
        self.check("main")

    # -- helpers ---------------------------------------------------------------------------------

    def draw_name(self, data: Any) -> str:
        names = _NAMES if self.history.spec_version == 1 else _NAMES_V2
        return str(data.draw(st.sampled_from(names), "name"))

    def draw_commit(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(list(self.history.commits)), "commit"))

    def refused_alike(self, call: str, *arguments: Any) -> None:
        found = {
            library: outcome(getattr(self.place.handles[library], call), *arguments)
            for library in LIBRARIES
        }
        assert all(map(is_failure, found.values()))
        kinds = {str(failure) for failure in found.values()}
        assert len(kinds) == 1, (call, found)


def _status(library: str, availability: str, reason: str | None) -> Any:
    ic = LIBRARIES[library]
    known = getattr(ic.RepoAvailability, availability)
    return ic.RepoStatus(known, limited_availability_reason=reason)
