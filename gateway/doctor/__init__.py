"""Owns `posthouse doctor`: one module per area, each a plain function that only looks."""
