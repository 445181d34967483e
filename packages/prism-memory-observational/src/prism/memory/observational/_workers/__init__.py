"""The workers: small agents with one tool each."""
