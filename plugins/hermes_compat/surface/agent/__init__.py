"""Owns modules that are found inside the package `agent`, and are not in it."""
