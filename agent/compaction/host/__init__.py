"""The host's side: when a compression runs, the engine, the lease, the commit, what is prepared."""
