"""The control loop of one group, and what builds it for a sidecar of one group."""
