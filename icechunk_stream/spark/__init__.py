"""The sink for Spark Structured Streaming: the only package that imports pyspark.

::

    from icechunk_stream.spark import Rows, append, icechunk_sink, regular

    layout = Rows(
        dims={"time": regular("2024-01-01", "1h"), "station": append()},
        variables={"temp": "float32"},
    )
    sink = icechunk_sink("/data/obs", layout=layout, app_id="obs", checkpoint_location=checkpoint)
    readings.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()
"""

from icechunk_stream.spark.quarantine import Quarantine
from icechunk_stream.spark.sink import IcechunkSink, icechunk_sink
from icechunk_stream.stream.layout import Rows, Variable, append, fixed, regular
from icechunk_stream.stream.ledger import Adopt

__all__ = [
    "Adopt",
    "IcechunkSink",
    "Quarantine",
    "Rows",
    "Variable",
    "append",
    "fixed",
    "icechunk_sink",
    "regular",
]
