"""`trimtab simulate`: replays streams of write rates through heuristics, side by side."""
