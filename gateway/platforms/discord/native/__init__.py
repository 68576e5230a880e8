"""Owns Discord's own ways to talk to a bot: the menu of commands, interactions, buttons."""
