"""Keeping a conversation inside the window: plan (pure), calls, host, and micro and native."""
