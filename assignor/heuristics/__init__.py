"""The built-in heuristics; `heuristics.registry` lists them by name."""
