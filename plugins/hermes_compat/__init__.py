"""Owns the names under which plugins know their host: modules of Hermes Agent that are not here.

`install` is called before the first plugin is loaded; the table of names is in README.md.
"""

from plugins.hermes_compat.finder import install, uninstall
from plugins.hermes_compat.host import Host

__all__ = ["Host", "install", "uninstall"]
