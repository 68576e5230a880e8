"""Owns the commands about notes: /memory, /forget."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent.mail import Button
from agent.memory.notes import Note
from gateway.commands import memory_text
from gateway.commands.contract import Answer, Call, CommandHost, Said, Settled
from gateway.forgetting import words
from gateway.intake.keys import place_for

LISTED = 10


async def memory(host: CommandHost, call: Call) -> Answer:
    """The notes of this place, a page at a time."""
    notes = await host.notes.notes(_place(call))
    page = _page(call.argument, len(notes))
    if page is None:
        return memory_text.MEMORY_USAGE
    if not notes:
        return memory_text.none(shared=not call.direct)
    shown = notes[(page - 1) * LISTED : page * LISTED]
    last = _pages(len(notes))
    buttons = [Button(memory_text.forget_button(note), f"/forget {note.id}") for note in shown]
    if page > 1:
        buttons.append(Button(memory_text.EARLIER, f"/memory {page - 1}"))
    if page < last:
        buttons.append(Button(memory_text.LATER, f"/memory {page + 1}"))
    text = memory_text.listing(shown, len(notes), page, last, signed=not call.direct)
    return Said(text, tuple(buttons))


async def forget(host: CommandHost, call: Call) -> Answer:
    """Take one note away: the one named, or the only one that says these words."""
    if not call.argument:
        return memory_text.FORGET_USAGE
    match call.argument.casefold().split():
        case ["me", *further]:
            return await _forget_me(host, call, further)
        case ["all"] | ["everything"]:
            return memory_text.NOT_ALL_AT_ONCE
        case _:
            pass
    place = _place(call)
    meant = await host.notes.meant(place, call.argument)
    if not meant:
        return memory_text.nothing_says(call.argument)
    if len(meant) > 1:
        return _choice(call.argument, meant)
    (note,) = meant
    if not call.direct and not call.admin and note.owner != call.record.owner:
        return memory_text.NOT_YOURS
    here = await host.sessions.conversation_for_key(call.key)
    gone = await host.notes.forget(place, note, conversation_id=here.id if here else "")
    return memory_text.forgotten(note) if gone else memory_text.GONE_ALREADY


async def _forget_me(host: CommandHost, call: Call, further: Sequence[str]) -> Answer:
    """All that is held of whoever asks; nothing goes before they have confirmed it."""
    desk, owner = host.forgetting, call.record.owner
    if desk is None:
        return words.NOT_HERE
    match further:
        case []:
            text, code = await desk.ask(owner)
            confirming = (Button(words.BUTTON, f"/forget me yes-{code}"),) if code else ()
            return Said(text, confirming)
        case [said] if said.startswith("yes-"):
            to = call.record.address
            code = said.removeprefix("yes-")
            if not await desk.confirm(owner, code, inbox_id=call.inbox_id, to=to):
                return Said(words.WRONG, aside=True)
            return Settled(())
        case _:
            return words.USAGE


async def state(host: CommandHost, call: Call) -> str:
    """For /status; "": nothing is remembered here, and nobody else remembers."""
    notes = await host.notes.notes(_place(call))
    return memory_text.state(len(notes), host.status.memory())


def _choice(words: str, meant: Sequence[Note]) -> Said:
    shown = meant[:LISTED]
    buttons = tuple(Button(memory_text.forget_button(n), f"/forget {n.id}") for n in shown)
    return Said(memory_text.several_say(words, shown, len(meant)), buttons)


def _place(call: Call) -> str:
    """As tools get it: what is remembered in private is never shown in a group."""
    return place_for(call.record.owner, call.key, direct=call.direct)


def _pages(count: int) -> int:
    return max(1, -(-count // LISTED))


def _page(argument: str, count: int) -> int | None:
    if not argument:
        return 1
    if not re.fullmatch(r"[0-9]{1,3}", argument):
        return None
    page = int(argument)
    return page if 1 <= page <= _pages(count) else None
