"""How Trimtab reaches brokers and lets itself be reached: secrets, TLS, SASL, tokens.

Shared by sidecar and consumer SDK, which do not know each other. No decision is made here, and
nothing here is imported by those who decide.
"""
