"""Owns `posthouse init`: what is asked, how each answer is tried, what is written."""
