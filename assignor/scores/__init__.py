"""Figures of a placement: R-score, cardinal bin score, fill levels, whether it is within the capacities."""
