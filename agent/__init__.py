"""Owns the core: messages, ports, the agent loop and its context engine."""
