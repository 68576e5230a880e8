"""Owns the daemon: platforms, lanes, delivery, the command line."""

__version__ = "0.1.0"
