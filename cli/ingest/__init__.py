"""`trimtab ingest`: writes topics into lake tables."""
