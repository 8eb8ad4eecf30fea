"""`trimtab sidecar`: runs the control loop that scales a consumer group."""
