"""Vocabulary of the lake, without I/O: interfaces, table names, partition rules, writers of files."""
