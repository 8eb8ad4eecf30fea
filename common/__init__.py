"""Shared by the assignor, the consumer SDK, the sidecar and the CLI. May do I/O."""
