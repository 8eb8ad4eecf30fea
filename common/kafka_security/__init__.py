"""Security of broker connections and endpoints: secrets, TLS, SASL, tokens, preflight check."""
