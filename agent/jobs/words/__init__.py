"""Plain times, as people write them: which part of a text is one, and which schedule it means."""
