"""What users can command: each a small function that gives back the text of its answer."""
