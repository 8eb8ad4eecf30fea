"""KIP-848: the broker assigns, librdkafka is the member and fetches."""
