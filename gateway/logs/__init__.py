"""Owns the log: what a line says, where it goes, and that no secret is ever on one."""

from gateway.logs.redaction import Redactor
from gateway.logs.setting_up import redacted, set_up
from gateway.logs.work import about

__all__ = ["Redactor", "about", "redacted", "set_up"]
