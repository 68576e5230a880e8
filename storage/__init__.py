"""Owns the session store: SQLite, its in-memory twin, search and the mailbox."""
