"""Owns what the host's module names give; a file here is imported under the host's name."""
