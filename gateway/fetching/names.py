"""Owns the look-up of hosts' addresses, on threads of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence

from agent.daemon_threads import DaemonThreads
from agent.tools.web import WebRefusal

LookUp = Callable[[str, int], Awaitable[Sequence[str]]]
"""(host, port) → its addresses, at least one; raises `WebRefusal`."""


class Names:
    """The system's name service.

    Not by the default executor, as an event loop would: a name server that does not answer would
    take all of its threads, and the platforms find their servers there.
    """

    def __init__(self) -> None:
        self._threads = DaemonThreads(4, name="names")

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """All addresses of a host, each once, in the order in which they are to be tried.

        Raises:
            WebRefusal: nobody knows it, or nobody answers.
        """

        def look() -> list[str]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(entry[4][0]) for entry in found))

        try:
            addresses = await asyncio.wrap_future(self._threads.submit(look))
        except socket.gaierror as exc:
            if exc.errno == socket.EAI_AGAIN:
                raise WebRefusal(
                    f"the name service does not answer for {host}; try again later"
                ) from exc
            raise WebRefusal(f"there is no host {host}: is the address right?") from exc
        except OSError as exc:
            raise WebRefusal(f"the host {host} can not be looked up now") from exc
        if not addresses:
            raise WebRefusal(f"the host {host} has no address")
        # All of them are judged, also those behind the ones that are tried.
        return addresses
