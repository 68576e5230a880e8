"""Owns the tests with plugins of others, as they come from the package index, unmodified."""
