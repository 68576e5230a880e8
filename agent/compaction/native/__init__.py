"""Compaction by the provider itself: cut, keepsake, new list, and the way back to the originals."""
