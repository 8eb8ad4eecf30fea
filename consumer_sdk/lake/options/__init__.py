"""Settings of the lake, of its storage, and of the connection of an ingest."""
