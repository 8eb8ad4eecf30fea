"""Plugins for Kafka clients; each is the only importer of its client."""
