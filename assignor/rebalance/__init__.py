"""Leader side of a rebalance, from subscriptions to assignments."""
