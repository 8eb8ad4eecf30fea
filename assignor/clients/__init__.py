"""Thin plugins, one per Kafka client; each is the only importer of its client."""
