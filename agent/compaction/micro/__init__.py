"""Micro-compaction: one exchange for each finished turn goes into one rolling digest."""
