"""Forgetting: a person who asks for it, and conversations that have been silent for long."""
