"""A rebalance as the leader runs it, from subscriptions to assignments."""
