"""Owns Markdown: what models write, in a form that each platform takes (pure)."""
