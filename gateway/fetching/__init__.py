"""Reaches out to the web for `fetch_url` (ADR 68): to public hosts, and to those that are named."""
