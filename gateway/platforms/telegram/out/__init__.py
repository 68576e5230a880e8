"""Owns the way out to Telegram: what a planned part becomes, how an answer is shown early."""
