"""`trimtab tables`: lists, compacts, expires, verifies and reads lake tables."""
