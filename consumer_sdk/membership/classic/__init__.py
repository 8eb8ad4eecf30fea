"""The classic protocol: a kafka-python group member in a thread of its own; it never fetches."""
