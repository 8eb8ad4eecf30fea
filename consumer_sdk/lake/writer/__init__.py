"""The writer: buffers records, hands batches to the flush, tracks positions, halts tables."""
