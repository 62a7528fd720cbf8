"""Two libraries act in turn on one repository, beside a model of plain values."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.alternation.comparing import check_branch, check_dumps, check_refs, check_session
from tests.alternation.drafts import Draft, union
from tests.alternation.drawing import draw_edits
from tests.alternation.edits import apply_edit
from tests.alternation.history import Commit, History
from tests.alternation.places import LIBRARIES, OURS, THEIRS, Place, Settings

LIBRARY = st.sampled_from((OURS, THEIRS))
SETTINGS = st.builds(
    Settings,
    threshold=st.sampled_from((512, 0, 8, 40)),
    split=st.sampled_from((None, 1, 2)),
    updates_per_file=st.sampled_from((None, 1, 3)),
)
WAYS = ("transaction", "amend", "flush", "discard", "empty")
RAN: Counter[str] = Counter()


class Acting(RuleBasedStateMachine):
    """What all steps are built on, and the steps in which one session begins and ends."""

    spec_version = 2

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.place = Place.below(Path(self.folder.name))
        self.history = History(self.spec_version, 0)
        self.steps = 0

    @initialize(library=LIBRARY, settings=SETTINGS, data=st.data())
    def create(self, library: str, settings: Settings, data: Any) -> None:
        self.place.create(library, self.history.spec_version, settings)
        self.history.threshold = settings.threshold
        self.transaction(library, self.place.handles[library], "main", data)
        self.check("main")

    @rule(library=LIBRARY, fresh=st.booleans(), data=st.data())
    def commit(self, library: str, fresh: bool, data: Any) -> None:
        branch = self.draw_branch(data)
        session = self.place.repository(library, fresh=fresh).writable_session(branch)
        draft = self.draft(branch)
        self.edit(draft, {library: session.store}, data)
        self.ran("commit", library)
        self.end("commit", session, draft, branch)
        self.check(branch)

    @rule(library=LIBRARY, fresh=st.booleans(), way=st.sampled_from(WAYS), data=st.data())
    def transact(self, library: str, fresh: bool, way: str, data: Any) -> None:
        branch = self.draw_branch(data)
        repository = self.place.repository(library, fresh=fresh)
        way = "commit" if way == "amend" and not self.can_amend(branch) else way
        self.ran(way, library)
        if way == "transaction":
            self.transaction(library, repository, branch, data)
        else:
            session = repository.writable_session(branch)
            draft = self.draft(branch)
            if way != "empty":
                self.edit(draft, {library: session.store}, data)
            self.end(way, session, draft, branch)
        self.check(branch)

    def can_amend(self, branch: str) -> bool:
        tip = self.history.tip(branch)
        return self.history.spec_version > 1 and tip.parent is not None and not tip.moved

    def transaction(self, library: str, repository: Any, branch: str, data: Any) -> None:
        message, metadata = self.said()
        draft = self.draft(branch)
        with repository.transaction(branch, message=message, metadata=metadata) as store:
            self.edit(draft, {library: store}, data)
        self.record(branch, store.session.snapshot_id, draft)

    def end(self, way: str, session: Any, draft: Draft, branch: str) -> None:
        check_session(session, draft.state)
        message, metadata = self.said()
        match way:
            case "commit":
                self.record(branch, session.commit(message, metadata), draft)
            case "empty":
                self.record(branch, session.commit(message, metadata, allow_empty=True), draft)
            case "amend":
                self.amended(branch, session.amend(message, metadata=metadata), draft)
            case "flush":
                self.flushed(branch, session.flush(message, metadata=metadata), draft)
            case _:
                session.discard_changes()
                check_session(session, draft.base)

    # -- the model -------------------------------------------------------------------------------

    def draft(self, branch: str) -> Draft:
        return Draft(self.history.tip(branch).state, self.history.threshold)

    def edit(self, draft: Draft, stores: dict[str, Any], data: Any) -> None:
        """The same edits through each of the stores, and in the model."""
        for edit in draw_edits(data.draw, draft.state, draft.threshold, self.place.virtual_file):
            note(str(edit))
            RAN[type(edit).__name__] += 1
            for library, store in stores.items():
                apply_edit(edit, LIBRARIES[library], store)
            draft.edit(edit)

    def said(self) -> tuple[str, dict[str, Any]]:
        self.steps += 1
        return self.words()

    def words(self) -> tuple[str, dict[str, Any]]:
        return f"step {self.steps} é", {"step": self.steps, "nested": {"é": [1.5, None, "x"]}}

    def made(self, id: str, parent: str | None, draft: Draft) -> Commit:
        message, metadata = self.words()
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

    def draw_branch(self, data: Any) -> str:
        return str(data.draw(st.sampled_from(sorted(self.history.branches)), "branch"))

    def ran(self, step: str, library: str) -> None:
        RAN[f"{step} by {library}"] += 1

    def check(self, branch: str) -> None:
        check_branch(self.place, self.history, branch)
        check_refs(self.place, self.history)

    def teardown(self) -> None:
        try:
            if self.place.handles:
                check_dumps(self.place)
        finally:
            self.folder.cleanup()
