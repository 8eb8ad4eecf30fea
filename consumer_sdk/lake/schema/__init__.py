"""Columns of records and of tables, and how they may change."""
