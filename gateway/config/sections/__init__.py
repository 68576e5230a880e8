"""Owns the sections of config.yaml, by what they are about."""
