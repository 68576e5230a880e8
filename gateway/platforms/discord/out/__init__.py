"""Owns the way out to Discord: from a planned part to a message that stands there once."""
