"""Share groups (KIP-932), asked by frames that no client library here has yet."""
