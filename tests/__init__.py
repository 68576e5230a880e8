"""Owns the name `tests`, and gives none of it away: suites of plugins run beside it have one too.

With our folder on ``PYTHONPATH``, a suite whose ``tests`` is no package (no ``__init__.py``) still
finds its own ``tests.conftest``: whose folder is first on the path is asked first.
"""

from pkgutil import extend_path

__path__ = extend_path([], __name__) or __path__
