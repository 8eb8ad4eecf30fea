"""What the assignor, the consumer SDK, the sidecar and the CLI share. May do I/O."""
