"""Owns backups of a home: made, kept, put back; beside a store that is never stopped for it."""
