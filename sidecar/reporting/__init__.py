"""What the sidecar reports: decision log, metrics, web server."""
