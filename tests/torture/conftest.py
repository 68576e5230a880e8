"""The world of the acceptance tests, for the torture as well."""

from tests.acceptance.conftest import world

__all__ = ["world"]
