"""Kafka's wire protocol: codecs of the requests that the project sends, connections, coordinators."""
