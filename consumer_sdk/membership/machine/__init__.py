"""A classic group member as a state machine without I/O, and the thread that drives it."""
