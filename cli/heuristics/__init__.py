"""`trimtab heuristics`: lists the heuristics."""
