"""Owns the way in: gate, conversation keys, commands, and the inbox row."""
