"""Change records (inserts, updates and deletes by key) to the rows of a table."""
