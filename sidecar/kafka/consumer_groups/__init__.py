"""Groups of the new consumer protocol (KIP-848), by requests that no installed client library offers yet."""
