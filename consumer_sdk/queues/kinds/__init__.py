"""The kinds of queues by name."""
