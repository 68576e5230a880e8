"""Owns the configuration: its models, its file, and what the environment says."""
