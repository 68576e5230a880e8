"""Owns the models: the provider's wire, the offline stand-in, the retry policy."""
