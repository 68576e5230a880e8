"""Owns what Telegram has beside messages: buttons, and the menu of commands."""
