"""`trimtab explain`: explains the replica count and the placement of a group."""
