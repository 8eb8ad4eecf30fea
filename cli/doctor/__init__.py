"""`trimtab doctor`: checks a group and says how to fix what is wrong."""
