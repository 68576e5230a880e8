"""Owns the shape of the command line: one module per kind of commands. Imports nothing heavy."""
