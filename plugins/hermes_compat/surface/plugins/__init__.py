"""Owns modules that are found inside the package `plugins`, and are not in it."""
