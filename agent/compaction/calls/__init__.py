"""The calls for a summary: what a model reads, what is tried in which order, what it cost."""
