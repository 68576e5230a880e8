"""Owns the guards of every test: nothing but loopback is reachable, no real address is dialled."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes.clock import FakeClock, SequentialIds

# The same examples in every run, however busy the machine: a run of the tests says something about
# the change, and nothing about luck. `make torture` looks for others, under the second profile.
_PATIENT: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("settled", derandomize=True, database=None, **_PATIENT)
settings.register_profile("exploring", print_blob=True, **_PATIENT)
settings.load_profile("settled")

_LOOPBACK = ("127.", "::1", "localhost")


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail any connection that would leave this machine."""
    real_connect = socket.socket.connect
    real_getaddrinfo = socket.getaddrinfo

    def connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX and not str(address[0]).startswith(_LOOPBACK):
            pytest.fail(f"a test tried to reach {address!r}; only loopback is allowed")
        real_connect(self, address)

    def getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        if host is not None and not name.startswith(_LOOPBACK):
            pytest.fail(f"a test tried to resolve {name!r}; only loopback is allowed")
        return real_getaddrinfo(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    # python-telegram-bot warns when it raises RetryAfter, unless told which type it may carry.
    monkeypatch.setenv("PTB_TIMEDELTA", "true")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return


@pytest.fixture(autouse=True)
def log_as_it_was() -> Iterator[None]:
    """Put back what a test set up: the next one in this process counts the lines that it causes."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    for handler in root.handlers[:]:
        if handler not in handlers and not type(handler).__module__.startswith("_pytest."):
            root.removeHandler(handler)


@pytest.fixture(autouse=True)
def no_heartbeat_left() -> Iterator[None]:
    """End the heartbeats of Discord connections that a test left in the middle of their greeting.

    The SDK ends them itself at the next beat: 41 s later, in a test that has another loop.
    """
    yield
    gateway = sys.modules.get("discord.gateway")
    if gateway is not None:
        for thread in threading.enumerate():
            if isinstance(thread, gateway.KeepAliveHandler):
                thread.stop()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ids() -> SequentialIds:
    return SequentialIds()
