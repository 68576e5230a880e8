"""Owns compaction: prune, boundaries, summary, assembly, manifest, policy; and the host's side."""
