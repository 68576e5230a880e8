"""Other people's plugins: found, loaded, kept apart (ADR 50)."""
