"""The queue kind `ordered`: parallel processing with order by key."""
