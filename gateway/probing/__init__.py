"""Owns the questions that platforms and providers are asked before anything runs: plain HTTP."""
