"""The service under a real systemd: one container for all tests, thrown away afterwards."""
