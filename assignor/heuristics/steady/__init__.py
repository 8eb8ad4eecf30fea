"""The heuristic `steady`: few consumers, few moves, and room for what comes next."""
