"""`trimtab plan`: prints what each heuristic would do with a live group."""
