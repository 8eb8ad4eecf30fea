"""The heuristic `steady`: few consumers, few moves, and room for the next tick."""
