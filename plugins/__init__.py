"""Plugins that are shipped, loaded by name only, and what helps authors of others."""
