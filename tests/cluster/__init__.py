"""A real Kubernetes control plane on this machine, for tests: see `python -m cluster`."""
