"""The offsets that a table holds, and the commit that they fence."""
