"""The process beside the group: observe, decide, check again, act, report."""
