"""`trimtab tables`: lists, compacts, expires and verifies lake tables."""
