"""Table names, columns, partitioning and schema evolution."""
