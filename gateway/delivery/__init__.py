"""Owns the way out: owed answers to the platform, in order, in parts, effectively once."""
