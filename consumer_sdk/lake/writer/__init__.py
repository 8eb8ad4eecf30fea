"""The writer: batches records, flushes in the background, tracks positions."""
