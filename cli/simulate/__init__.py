"""`trimtab simulate`: the bench that anyone can run on their own traffic."""

from trimtab.cli.simulate.command import SEED, simulate

__all__ = ["SEED", "simulate"]
