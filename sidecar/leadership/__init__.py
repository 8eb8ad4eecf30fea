"""Which of several sidecars steers the group."""
