"""Simulation of the sidecar's control loop and its group on a stream of write rates."""
