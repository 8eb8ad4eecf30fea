"""The built-in heuristics, one a file; `heuristics.registry` knows them by name."""
