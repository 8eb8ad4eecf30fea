"""The queue kind `share`: share groups (KIP-932)."""
