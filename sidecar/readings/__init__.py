"""What asks somebody, the brokers or Prometheus, and makes measurements of the answers."""
