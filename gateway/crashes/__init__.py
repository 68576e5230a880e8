"""Owns what is left behind by what nobody foresaw: reports in files, and how each run ended."""
