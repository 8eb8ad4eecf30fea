"""`trimtab top`: shows the consumers of a group live."""
