"""Owns the commands about the conversations of a person or place: /title, /sessions, /resume."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agent.errors import SessionNotFound, StaleTurn
from agent.lineages import ConversationInfo
from agent.mail import Button
from agent.sessions import SearchScope
from agent.titles import given_name
from gateway import texts
from gateway.commands import lineage_text
from gateway.commands.contract import Call, CommandHost, Said, boundary
from gateway.intake.keys import is_personal

LISTED = 10
NUMBERED = 100
"""So many of a list can be chosen by their numbers, page by page."""
LOOKED_THROUGH = 500
"""So many of the newest conversations can be found by their names."""
SEARCH_HITS = 20


async def title(host: CommandHost, call: Call) -> str:
    """Show the conversation's name, or set it."""
    conversation = await host.sessions.conversation_for_key(call.key)
    if conversation is None:
        return texts.NO_CONVERSATION
    if call.argument and call.shared and not call.admin:
        return texts.ADMIN_ONLY  # looking is for everybody
    if call.argument:
        session = await host.lineages.set_title(conversation.id, call.argument)
        if session.title is None:
            return lineage_text.NOTHING_IN_TITLE
        return lineage_text.named(session.title)
    chain = await host.sessions.lineage(conversation.tip_session_id)
    name = given_name(session.title for session in chain)
    return lineage_text.NO_TITLE if name is None else lineage_text.titled(name)


async def sessions(host: CommandHost, call: Call) -> str | Said:
    """The conversations that could be gone on with here, newest first, a page at a time."""
    infos = await _within_reach(host, call)
    page = _page_in(call.argument, infos)
    if page is None:
        infos = await _about(host, call, infos, call.argument)
        if not infos:
            return lineage_text.found_nothing(call.argument)
        return _choice(host, call, infos)
    if not infos:
        return lineage_text.NO_SESSIONS
    return _choice(host, call, _as_shown(host, call, infos, page), page)


async def resume(host: CommandHost, call: Call) -> str | Said:
    """Lead this place to another conversation."""
    infos = await _within_reach(host, call)
    if not call.argument:
        return _choice(host, call, infos, 1) if infos else lineage_text.NO_SESSIONS
    meant = await _meant(host, call, infos, call.argument)
    if not meant:
        return lineage_text.found_nothing(call.argument)
    if len(meant) > 1:
        choice = _choice(host, call, meant)
        return replace(choice, text=lineage_text.ambiguous(call.argument, choice.text))
    return await _lead(host, call, meant[0])


async def _lead(host: CommandHost, call: Call, info: ConversationInfo) -> str:
    here = await host.sessions.conversation_for_key(call.key)
    if here is not None and here.id == info.id:
        return lineage_text.ALREADY_HERE
    elsewhere = info.routed and info.session_key != call.key
    if elsewhere and (host.busy(info.session_key) or host.waiting(info.session_key)):
        return lineage_text.BUSY_ELSEWHERE
    try:
        session = await host.lineages.resume(call.key, info.id)
    except StaleTurn:
        return lineage_text.BUSY_ELSEWHERE
    await host.crossed(boundary("resume", call, here, session))
    return lineage_text.resumed(info, call.record.received_at, moved=elsewhere)


async def _within_reach(host: CommandHost, call: Call) -> Sequence[ConversationInfo]:
    """What the caller may see and go on with from here.

    In a direct chat all that is theirs alone, wherever it lives. In a group only what lives at the
    same key, so that nothing said in private is carried into it; and what several people said
    together stays where they said it.
    """
    if not call.direct:
        infos = await host.lineages.conversations_at(call.key, limit=LOOKED_THROUGH)
        owner = None if call.shared else call.record.owner
    else:
        infos = await host.lineages.conversations_of(call.record.owner, limit=LOOKED_THROUGH)
        infos = [i for i in infos if is_personal(i.session_key)]
        owner = call.record.owner
    here = await host.sessions.conversation_for_key(call.key)
    return [
        info
        for info in infos
        if owner in (None, info.owner)
        and (_holds_something(info) or (here is not None and info.id == here.id))
    ]


def _holds_something(info: ConversationInfo) -> bool:
    """Is there anything to go on with? A copy may hold nothing but a summary."""
    return bool(info.opening or info.message_count) or info.last_message_at is not None


def _page_in(argument: str, infos: Sequence[ConversationInfo]) -> int | None:
    """Which page is asked for; None: it is words that are looked for."""
    if not argument:
        return 1
    if not re.fullmatch(r"[0-9]{1,2}", argument):
        return None
    page = int(argument)
    return page if 1 <= page <= _pages(infos) else None


def _pages(infos: Sequence[ConversationInfo]) -> int:
    return -(-min(len(infos), NUMBERED) // LISTED)


def _as_shown(
    host: CommandHost, call: Call, infos: Sequence[ConversationInfo], page: int
) -> Sequence[ConversationInfo]:
    """In the order of the list whose first page was shown: numbers do not move while one looks."""
    order = host.listings.of(call.key)
    if page == 1 or len(order) <= (page - 1) * LISTED:
        return infos
    by_id = {info.id: info for info in infos}
    known = [by_id.pop(id_) for id_ in order if id_ in by_id]
    return [*known, *by_id.values()]


def _choice(
    host: CommandHost, call: Call, infos: Sequence[ConversationInfo], page: int | None = None
) -> Said:
    """A list to choose from, a page of it or (of what was looked for) its beginning."""
    first = ((page or 1) - 1) * LISTED
    shown = infos[first : first + LISTED]
    host.listings.remember(call.key, [info.id for info in infos[: NUMBERED if page else LISTED]])
    following = page + 1 if page is not None and page < _pages(infos) else None
    left = len(infos) - first - len(shown)
    more = lineage_text.more(left, following)
    entries = lineage_text.listing(shown, call.key, call.record.received_at, first + 1)
    # By their ids: a number means what it meant in the list that was shown last.
    buttons = [
        Button(str(number), f"/resume {info.id}")
        for number, info in enumerate(shown, first + 1)
        if not (info.routed and info.session_key == call.key)
    ]
    if page is not None and page > 1:
        buttons.append(Button(lineage_text.NEWER, f"/sessions {page - 1}"))
    if following is not None:
        buttons.append(Button(lineage_text.OLDER, f"/sessions {following}"))
    text = "\n".join(filter(None, (entries, more, lineage_text.RESUME_HINT)))
    return Said(text, tuple(buttons))


async def _about(
    host: CommandHost, call: Call, infos: Sequence[ConversationInfo], words: str
) -> Sequence[ConversationInfo]:
    """Those with these words in their name, then those in which they were said."""
    by_name = _named(infos, words)
    said = set()
    if not call.shared:
        scope = SearchScope(owner=call.record.owner)
        for hit in await host.archive.search(words, scope, limit=SEARCH_HITS):
            conversation = await host.archive.conversation_of_message(hit.message_id)
            if conversation is not None:
                said.add(conversation.id)
    return [*by_name, *(i for i in infos if i.id in said and i not in by_name)]


async def _meant(
    host: CommandHost, call: Call, infos: Sequence[ConversationInfo], words: str
) -> Sequence[ConversationInfo]:
    """Which one: by its number in the list shown last, its id or a session's, or its name."""
    by_id = {info.id: info for info in infos}
    if re.fullmatch(r"[0-9]{1,4}", words):
        shown = host.listings.of(call.key) or tuple(info.id for info in infos[:LISTED])
        number = int(words)
        if 1 <= number <= len(shown) and shown[number - 1] in by_id:
            return [by_id[shown[number - 1]]]
    if words in by_id:
        return [by_id[words]]
    try:
        session = await host.sessions.tip(words)
    except SessionNotFound:
        return _named(infos, words)
    return [by_id[session.conversation_id]] if session.conversation_id in by_id else []


def _named(infos: Sequence[ConversationInfo], words: str) -> Sequence[ConversationInfo]:
    """Those called so; if there is none, those whose name or first words hold these words."""
    wanted = words.casefold()
    so_called = [i for i in infos if (i.name or "").casefold() == wanted]
    with_number = [i for i in infos if (i.title or "").casefold() == wanted]
    if called := so_called or with_number:
        return called
    return [i for i in infos if wanted in f"{i.title or ''}\n{i.opening}".casefold()]
