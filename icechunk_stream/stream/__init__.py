"""Exactly-once batches of rows, free of Spark: layouts, placement, chunks, ledger, commit."""
