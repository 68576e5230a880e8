"""Conversations as files: the nouns, the formats, the port."""
