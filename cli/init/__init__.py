"""`trimtab init`: writes the settings of a sidecar for a live group, from what the group itself tells."""
