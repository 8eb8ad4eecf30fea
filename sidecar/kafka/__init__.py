"""The sidecar's Kafka clients: offsets, log sizes, samples, control topics."""
