"""Owns modules that are found inside the package `gateway`, and are not in it."""
