"""Owns the package name `tools` of the host."""
