"""Owns the tools that ship with the product."""
