"""The offsets that a table holds, and the gaps between them."""
