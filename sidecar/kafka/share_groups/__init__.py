"""Share groups (KIP-932), by requests that no installed client library offers yet."""
