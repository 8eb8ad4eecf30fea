"""The control plane: who is a member of the group, by either protocol, and what its leader knows."""
