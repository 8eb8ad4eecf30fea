"""The scaling decision: pure functions from an observation to a replica count."""
