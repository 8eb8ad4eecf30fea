"""Bridge read: the rows of a table together with the records that are not yet in it."""
