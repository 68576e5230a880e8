"""Owns the package name `hermes_cli` of the host."""
