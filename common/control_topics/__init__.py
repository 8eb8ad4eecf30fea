"""Control topics: names, record values and their codec."""
