"""A real Kubernetes control plane on this machine for tests; `python -m cluster` starts one."""
