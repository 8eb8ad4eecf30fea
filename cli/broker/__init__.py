"""`trimtab broker`: runs a single-node Kafka broker for development."""
