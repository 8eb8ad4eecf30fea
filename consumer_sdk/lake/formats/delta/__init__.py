"""Delta tables: data files, fenced commit, maintenance."""
