"""`trimtab doctor`: checks everything around a group, and suggests remedies."""
