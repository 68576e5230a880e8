"""Databases as they were written by each version of the schema, and what they hold.

`python -m tests.golden NAME` makes one; it is done once for each schema version, and never again.
"""
