"""Owns one page from its address to its bytes: each step of it is checked before it is made."""

from __future__ import annotations

from agent.tools.web import WebPage, WebRefusal
from gateway import __version__
from gateway.fetching.client import Moved, ask
from gateway.fetching.named import NamedHosts
from gateway.fetching.names import LookUp
from gateway.fetching.targets import Target, check_reach, next_target, target_of

MAX_MOVES = 5
USER_AGENT = f"posthouse/{__version__} (reads one page because somebody asked for it)"


class Follower:
    """Goes after one page."""

    def __init__(self, named: NamedHosts, look_up: LookUp) -> None:
        self._named = named
        self._look_up = look_up

    async def get(self, url: str) -> WebPage:
        """The page, wherever it has moved to.

        Raises:
            WebRefusal: there is none, or one of the steps there is not to be made.
        """
        target = target_of(url, self._named)
        for _ in range(MAX_MOVES + 1):
            answer = await self._asked(target)
            if not isinstance(answer, Moved):
                return answer
            target = next_target(target, answer.location, self._named)
        raise WebRefusal(f"the page has moved more than {MAX_MOVES} times; that is not followed")

    async def _asked(self, target: Target) -> WebPage | Moved:
        """What is judged here is what is connected to: nobody looks the name up again."""
        if target.address is not None:
            addresses = [str(target.address)]
        else:
            addresses = list(await self._look_up(target.host, target.port))
        check_reach(target, addresses)
        return await ask(target, addresses, user_agent=USER_AGENT)
