"""A port for a server that has to know its own before it listens there."""

from __future__ import annotations

import itertools
import os
import socket

# Below what Linux gives to whoever asks for any port, so that nobody gets it meanwhile by chance;
# each process begins somewhere else, for the workers that run beside it.
_FIRST, _COUNT = 20_000, 12_000
_turns = itertools.count(os.getpid() * 997)


def free_port() -> int:
    """One of 127.0.0.1 where nobody listens."""
    while True:
        port = _FIRST + next(_turns) % _COUNT
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
