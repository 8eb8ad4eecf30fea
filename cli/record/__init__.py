"""`trimtab record`: records the write rates of a live group into a stream file."""
