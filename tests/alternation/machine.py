"""Libraries act in turn on one repository, beside a model of plain values."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any, ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import icechunk_stream
from tests.alternation import edits
from tests.alternation.drafts import Draft, union
from tests.alternation.drawing import draw_edits, draw_touch
from tests.alternation.driver import Driver, Failed, Settings
from tests.alternation.history import Commit, History
from tests.alternation.seen import expected
from tests.oracle.compare import assert_same
from tests.oracle.libraries import REFERENCE

OURS, THEIRS = "ours", "reference"
_TURN = 23
SETTINGS = st.builds(
    Settings,
    threshold=st.sampled_from((512, 0, 8, 40)),
    split=st.sampled_from((None, 1, 2)),
    updates_per_file=st.sampled_from((None, 1, 3)),
)


class Acting(RuleBasedStateMachine):
    """What all steps are built on. A step is a method that takes hypothesis's data.

    Each step is done by ``library``, on a handle that it keeps or, if ``fresh``, on a new one.
    """

    spec_version: ClassVar[int] = 2
    steps: ClassVar[dict[str, int]] = {}  # and how often each is drawn
    ran: ClassVar[Counter[str]] = Counter()
    commits_nothing: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.drivers = self.open_drivers(self.folder.name)
        self.history = History(self.spec_version, 0)
        self.library, self.fresh, self.count, self.turns = OURS, False, 0, 0
        self.split: int | None = None

    def open_drivers(self, folder: str) -> dict[str, Any]:
        return {OURS: Driver(icechunk_stream, folder), THEIRS: Driver(REFERENCE, folder)}

    @initialize(data=st.data(), settings=SETTINGS)
    def create(self, data: Any, settings: Settings) -> None:
        self.draw_actor(data)
        self.driver.create(self.history.spec_version, settings)
        self.history.threshold, self.split = settings.threshold, settings.split
        self.commit(data)

    @rule(data=st.data())
    def step(self, data: Any) -> None:
        self.draw_actor(data)
        name = self.draw_step(data)
        note(f"{name} by {self.library}")
        self.tell(name)
        getattr(self, name)(data)

    def draw_step(self, data: Any) -> str:
        """Turned on at each step: hypothesis often draws nothing but the first of a list."""
        possible = [name for name in self.steps if self.is_possible(name)]
        weighted = [name for name in possible for _ in range(self.steps[name])]
        self.turns += 1
        number: int = data.draw(st.integers(0, len(weighted) - 1), "step")
        return weighted[(number + _TURN * self.turns) % len(weighted)]

    def is_possible(self, name: str) -> bool:
        found = getattr(self, f"can_{name}", None)
        return found is None or bool(found())

    def teardown(self) -> None:
        try:
            if len(self.history.commits) > 1:
                self.check_dumps()
        finally:
            self.folder.cleanup()

    # -- one session from its beginning to its end -----------------------------------------------

    def commit(self, data: Any) -> None:
        self.one_session(data, "commit")

    def two_commits(self, data: Any) -> None:
        """One after the other, on handles that do not know of each other's."""
        for library in data.draw(st.permutations(sorted(self.drivers))):
            self.library, self.fresh = library, False
            self.one_session(data, "commit")

    def amend(self, data: Any) -> None:
        self.one_session(data, "amend")

    def flush(self, data: Any) -> None:
        self.one_session(data, "flush")

    def discard(self, data: Any) -> None:
        branch = self.draw_branch(data)
        session = self.driver.begin(branch, self.fresh)
        draft = self.draft(branch)
        self.driver.edit(session, self.draw_edits(draft, data))
        self.driver.discard(session)
        assert not self.driver.is_changed(session)
        assert_same(expected(draft.base), self.driver.seen(session), ("model", self.library))

    def empty(self, data: Any) -> None:
        branch = self.draw_branch(data)
        session = self.driver.begin(branch, self.fresh)
        id = self.driver.commit(session, *self.words())
        self.record(branch, id, self.draft(branch))
        self.check(branch)

    def transaction(self, data: Any) -> None:
        branch = self.draw_branch(data)
        draft = self.draft(branch)
        made = self.draw_edits(draft, data)
        final = draw_touch(draft.state, self.count)
        draft.edit(final)
        message, metadata = self.words()
        id = self.driver.transaction(branch, [*made, final], message, metadata, fresh=self.fresh)
        self.record(branch, id, draft)
        self.check(branch)

    def one_session(self, data: Any, way: str) -> None:
        branch = data.draw(
            st.sampled_from(self.branches_to_amend()) if way == "amend" else self.any_branch()
        )
        session = self.driver.begin(branch, self.fresh)
        draft = self.draft(branch)
        self.driver.edit(session, self.draw_edits(draft, data))
        self.fill_up(draft, {self.library: session})
        assert_same(expected(draft.state), self.driver.seen(session), ("model", self.library))
        id = getattr(self.driver, way)(session, *self.words())
        {"commit": self.record, "amend": self.amended, "flush": self.flushed}[way](
            branch, id, draft
        )
        self.check(branch)

    def can_amend(self) -> bool:
        return self.history.spec_version > 1 and bool(self.branches_to_amend())

    def branches_to_amend(self) -> list[str]:
        tips = {name: self.history.tip(name) for name in sorted(self.history.branches)}
        return [name for name, tip in tips.items() if tip.parent is not None and not tip.moved]

    # -- the model -------------------------------------------------------------------------------

    def draft(self, branch: str) -> Draft:
        return Draft(self.history.tip(branch).state, self.history.threshold)

    def draw_edits(
        self, draft: Draft, data: Any, without: frozenset[str] = frozenset()
    ) -> list[edits.Edit]:
        """Some edits, which the draft has then."""
        location = f"file://{self.folder.name}/files/virtual.bin"
        made = draw_edits(data.draw, draft, location, without)
        for edit in made:
            note(str(edit))
            self.tell(type(edit).__name__)
        return made

    def fill_up(self, draft: Draft, sessions: dict[str, int]) -> None:
        """Change something where nothing was, for libraries that refuse to commit that."""
        if not (self.commits_nothing or self.driver.is_changed(sessions[self.library])):
            edit = draw_touch(draft.state, self.count)
            draft.edit(edit)
            for library, session in sessions.items():
                self.drivers[library].edit(session, [edit])

    def words(self) -> tuple[str, dict[str, Any]]:
        """Message and metadata of the next commit."""
        self.count += 1
        return self.said()

    def said(self) -> tuple[str, dict[str, Any]]:
        return f"step {self.count} é", {"step": self.count, "nested": {"é": [1.5, None, "x"]}}

    def made(self, id: str, parent: str | None, draft: Draft) -> Commit:
        assert not isinstance(id, Failed), id
        message, metadata = self.said()
        return Commit(id, parent, message, metadata, draft.state, draft.touched)

    def record(self, branch: str, id: str, draft: Draft) -> None:
        self.history.commit(branch, self.made(id, self.history.branches[branch], draft))

    def amended(self, branch: str, id: str, draft: Draft) -> None:
        tip = self.history.tip(branch)
        draft.touched = union((tip.touched, draft.touched))
        self.history.commit(branch, self.made(id, tip.parent, draft))

    def flushed(self, branch: str, id: str, draft: Draft) -> None:
        self.history.add(self.made(id, self.history.branches[branch], draft))

    # -- helpers of all steps --------------------------------------------------------------------

    @property
    def driver(self) -> Any:
        return self.drivers[self.library]

    def call(self, name: str, *arguments: Any, **named: Any) -> Any:
        found = self.driver.call(name, *arguments, fresh=self.fresh, **named)
        assert not isinstance(found, Failed), (name, found)
        return found

    def draw_actor(self, data: Any) -> None:
        self.library = data.draw(st.sampled_from(sorted(self.drivers)), "library")
        self.fresh = data.draw(st.booleans(), "fresh")

    def any_branch(self) -> st.SearchStrategy[str]:
        """Most often one that open sessions are on."""
        names = sorted(self.history.branches)
        return st.sampled_from([name for name in self.awaited() * 3 if name in names] + names)

    def awaited(self) -> list[str]:
        """Branches of open sessions."""
        return []

    def draw_branch(self, data: Any) -> str:
        return str(data.draw(self.any_branch(), "branch"))

    def tell(self, what: str) -> None:
        self.ran[f"{what} by {self.library}"] += 1

    # -- checks ----------------------------------------------------------------------------------

    def check(self, branch: str = "main") -> None:
        """All libraries, on fresh handles, say the same, and that is what the model says."""
        parent = self.history.tip(branch).parent
        told = {name: driver.told(branch, parent) for name, driver in self.drivers.items()}
        ours = told[OURS]
        for library in self.drivers.keys() - {OURS}:
            _complete_diff(told[library].get("diff", {}), ours.get("diff", {}))
            self.assert_alike(told[library], ours, library)
        self.check_with_model(ours, branch)

    def assert_alike(self, theirs: Any, ours: Any, library: str) -> None:
        assert_same(theirs, ours, (library, OURS))

    def check_with_model(self, told: dict[str, Any], branch: str) -> None:
        history = self.history
        commits = history.ancestry(history.branches[branch])
        known = ({"id": c.id, "parent": c.parent, "message": c.message} for c in commits)
        modelled = {
            "branches": history.branches,
            "tags": history.tags,
            "seen": expected(history.tip(branch).state),
            "ancestry": [
                {
                    **info,
                    **fields,
                    "metadata": info["metadata"] if c.metadata is None else c.metadata,
                }
                for info, fields, c in zip(told["ancestry"], known, commits, strict=True)
            ],
        }
        if history.spec_version > 1:
            modelled["metadata"] = history.metadata
        assert_same(modelled, {name: told[name] for name in modelled}, ("model", OURS))

    def refused_alike(self, name: str, *arguments: Any) -> None:
        found = {library: d.call(name, *arguments) for library, d in self.drivers.items()}
        assert all(isinstance(failure, Failed) for failure in found.values()), (name, found)
        kinds = {failure.kind for failure in found.values()} - {None}
        assert len(kinds) == 1, (name, found)

    def check_dumps(self) -> None:
        """Everything that is stored."""
        dumps = {library: driver.dump() for library, driver in self.drivers.items()}
        for library in self.drivers.keys() - {OURS}:
            self.assert_alike(dumps[library], dumps[OURS], library)


def _complete_diff(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    """Of two arrays that were at one path, the reference tells the chunks of either, by chance."""
    if "updated_chunks" in theirs and "updated_chunks" in ours:
        told = ours["updated_chunks"]
        replaced = set(theirs["new_arrays"]) & set(theirs["deleted_arrays"])
        for path in replaced & told.keys() & theirs["updated_chunks"].keys():
            theirs["updated_chunks"][path] = told[path]
