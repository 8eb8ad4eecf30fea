"""The built-in heuristics, one a file; `trimtab.assignor.registry` knows them by name."""
