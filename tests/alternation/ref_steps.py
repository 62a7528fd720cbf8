"""Steps on refs and on what stands beside them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.alternation.machine import SETTINGS, Acting

# What local storage has to escape, 2.3.0 lists as it is escaped on spec v1.
_NAMES = ("b", "b.1", "b 2", "b-3", "(4)")
_NAMES_V2 = (*_NAMES, "é", "a/b", "%2F")
_BRANCHES_AT_MOST = 4


class RefSteps(Acting):
    # -- refs ------------------------------------------------------------------------------------

    def can_create_branch(self) -> bool:
        return len(self.history.branches) < _BRANCHES_AT_MOST

    def create_branch(self, data: Any) -> None:
        name, target = self.draw_name(data), self.draw_commit(data)
        if name in self.history.branches:
            self.refused_alike("create_branch", name, target)
        else:
            self.call("create_branch", name, target)
            self.history.branches[name] = target
        self.check(name)

    def can_delete_branch(self) -> bool:
        return len(self.history.branches) > 1

    def delete_branch(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.history.branches.keys() - {"main"})))
        self.call("delete_branch", name)
        del self.history.branches[name]
        self.check()

    def reset_branch(self, data: Any) -> None:
        branch, target = self.draw_branch(data), self.draw_commit(data)
        tip = self.history.branches[branch]
        guard = {"from_snapshot_id": tip} if data.draw(st.booleans()) else {}
        self.call("reset_branch", branch, target, **guard)
        self.history.branches[branch] = target
        self.check(branch)

    def create_tag(self, data: Any) -> None:
        name, target = self.draw_name(data), self.draw_commit(data)
        if name in self.history.used_tags or "create_tag" in self.history.disabled:
            self.refused_alike("create_tag", name, target)
        else:
            self.call("create_tag", name, target)
            self.history.tags[name] = target
            self.history.used_tags.add(name)
        self.check()

    def can_delete_tag(self) -> bool:
        return bool(self.history.tags)

    def delete_tag(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.history.tags)))
        if "delete_tag" in self.history.disabled:
            self.refused_alike("delete_tag", name)
        else:
            self.call("delete_tag", name)
            del self.history.tags[name]
        self.check()

    # -- settings --------------------------------------------------------------------------------

    def configure(self, data: Any) -> None:
        settings = data.draw(SETTINGS)
        self.driver.configure(settings)
        self.history.threshold = settings.threshold
        for driver in self.drivers.values():
            driver.reopen()
        self.check()

    def is_v2(self) -> bool:
        return self.history.spec_version > 1

    can_set_metadata = can_pause = can_set_flag = is_v2

    def set_metadata(self, data: Any) -> None:
        number = data.draw(st.integers(0, 9))
        new = {f"item {number}": [number, {"é": None}], "last": number}
        if data.draw(st.booleans()):
            self.call("set_metadata", new)
            self.history.metadata = new
        else:
            self.history.metadata = self.history.metadata | new
            assert self.call("update_metadata", new) == self.history.metadata
        self.check()

    def pause(self, data: Any) -> None:
        """Nobody writes to a repository that one of them made read-only."""
        self.driver.set_status("read_only", data.draw(st.sampled_from((None, "", "é why"))))
        self.refused_alike("writable_session", "main")
        self.refused_alike("set_metadata", {})
        self.refused_alike("create_tag", "never", self.history.branches["main"])
        self.check()
        self.draw_actor(data)
        self.driver.set_status("online", None)
        self.check()

    def set_flag(self, data: Any) -> None:
        flag = data.draw(st.sampled_from(("create_tag", "delete_tag", "move_node")))
        setting = data.draw(st.sampled_from((None, True, False)))
        self.call("set_feature_flag", flag, setting)
        if setting is False:
            self.history.disabled.add(flag)
        else:
            self.history.disabled.discard(flag)
        self.check()

    # -- helpers ---------------------------------------------------------------------------------

    def draw_name(self, data: Any) -> str:
        names = _NAMES_V2 if self.is_v2() else _NAMES
        return str(data.draw(st.sampled_from(names), "name"))

    def draw_commit(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(list(self.history.commits)), "commit"))
