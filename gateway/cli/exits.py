"""Owns the exit codes; the unit file and operators' scripts rely on them."""

OK = 0
FAILED = 1
MISTYPED = 2
HOME_IN_USE = 73
RESTART_WANTED = 75
BAD_CONFIG = 78
