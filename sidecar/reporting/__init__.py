"""What the sidecar reports: decision log, conditions, metrics, spans."""
