"""Owns the platforms: each a folder of adapter (its SDK), convert and render (both pure)."""
