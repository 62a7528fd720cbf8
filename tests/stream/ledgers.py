"""A ledger's entry, and how it is stored."""

from icechunk_stream.stream.frozen import FrozenMap
from icechunk_stream.stream.ledger import Counts, LedgerEntry, Timings

PATH = "/_icechunk_stream/obs-v1"
ENTRY = LedgerEntry(
    query_id="52292fe2-5557-4548-9509-de54eec467ae",
    batch_id=7,
    digest="sha256:cfa4",
    offsets=('{"obs":{"1":120,"0":97}}', "-"),
    counts=Counts(received=10, written=6, late=1, duplicate=2, bad=1),
    timings=Timings(1_795_039_691_102_345, FrozenMap({"write": 0.25, "place": 0.5})),
    earlier=FrozenMap({"85755f2c": 3}),
)
ATTRIBUTES = {
    "version": 1,
    "batch_id": 7,
    "query_id": "52292fe2-5557-4548-9509-de54eec467ae",
    "digest": "sha256:cfa4",
    "offsets": ['{"obs":{"1":120,"0":97}}', "-"],
    "rows": {"in": 10, "written": 6, "late": 1, "duplicate": 2, "bad": 1},
    "started_at": 1_795_039_691_102_345,
    "seconds": {"write": 0.25, "place": 0.5},
    "earlier": {"85755f2c": 3},
}
