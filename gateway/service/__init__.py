"""Owns posthouse as a service of systemd: its unit files, what is installed, installing it."""
