"""The heuristic `rack-aware`: even counts, then the least cross-rack traffic (KIP-925)."""
