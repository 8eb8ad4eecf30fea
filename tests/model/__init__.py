"""Model of lease, two-round handover and fence: every order of events, to a stated depth."""
