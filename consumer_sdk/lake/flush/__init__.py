"""The flush of one table: stages, commits, threads, metrics and spans."""
