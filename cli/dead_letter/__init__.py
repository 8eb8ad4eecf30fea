"""`trimtab dead-letter`: lists and resends records that could not be decoded."""
