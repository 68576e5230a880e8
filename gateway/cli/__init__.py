"""Owns the command line: one module per group of commands, heavy imports inside functions."""
