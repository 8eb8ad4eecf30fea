"""Iceberg tables: data files, fenced commit, maintenance."""
