"""Many groups in one process: shared connections, one control loop for each group."""
