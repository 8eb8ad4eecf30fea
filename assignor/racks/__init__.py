"""The traffic between racks, and warnings about it."""
