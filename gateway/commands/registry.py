"""Owns the list of commands: names, help, where each runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import get_args

from gateway.commands import (
    approvals,
    context,
    conversations,
    going_back,
    jobs,
    lineage,
    memory,
    micro,
    restart,
    talk,
    usage,
)
from gateway.commands.contract import Answer, Call, Command, CommandHost, Group


async def help_text(host: CommandHost, call: Call) -> str:
    """The list of commands, by what they are about."""
    how = "Just write to me." if call.direct else "Mention me here, or answer a message of mine."
    blocks = [f"{how} I also know:"]
    for group in get_args(Group):
        every = [*COMMANDS.values(), *host.foreign.values()]
        commands = [c for c in every if c.group == group and may_see(c, call)]
        if commands:
            blocks.append("\n".join([f"{group}:", *map(_line, commands)]))
    return "\n\n".join(blocks)


def may_see(command: Command, call: Call) -> bool:
    """Is this one for whoever asks?"""
    if command.plugin:
        return call.foreign(command.name)
    return call.admin or not command.admin_only


def _line(command: Command) -> str:
    usage = f" {command.usage}" if command.usage else ""
    return f"/{command.name}{usage}: {command.help}"


def _changing(
    name: str,
    help_: str,
    run: Callable[[CommandHost, Call], Awaitable[Answer]],
    group: Group,
    usage: str = "",
    *,
    stoppable: bool = False,
) -> Command:
    """One that changes what a conversation holds or where its place leads.

    It waits for what is running, and where several people talk it takes an admin.
    """
    return Command(name, help_, run, group, "in order", True, usage, stoppable)


COMMANDS: Mapping[str, Command] = {
    c.name: c
    for c in (
        Command("stop", "end what I am doing right now", talk.stop, "Talking"),
        _changing("retry", "ask your last message again", going_back.retry, "Talking"),
        Command("approve", "let me do what I asked you about", approvals.approve, "Talking",
                usage="[id]", stoppable=False),
        Command("deny", "do not let me do it; a reason helps me", approvals.deny, "Talking",
                usage="[id] [why]", stoppable=False),
        _changing("new", "start a new conversation; the old one is kept", talk.new, "Talking"),
        Command("status", "how things are: model, window, context", context.status,
                "This conversation"),
        Command("context", "what fills the model's window, and what comes next",
                context.context, "This conversation"),
        _changing("compress", "shorten this conversation now, with more detail on the focus",
                  context.compress, "This conversation", "[focus]", stoppable=True),
        Command("micro", "condense older answers one by one: on, off or as configured",
                micro.micro, "This conversation", usage="[on|off|inherit]", stoppable=False),
        Command("lineage", "the sessions behind this conversation", lineage.lineage,
                "This conversation"),
        Command("title", "show or set the name of this conversation", conversations.title,
                "This conversation", "in order", usage="[name]", stoppable=False),
        _changing("undo", "take back your last message, or several, and what came of them",
                  going_back.undo, "Going back", "[number]"),
        _changing("uncompress", "bring back what the last compression condensed",
                  lineage.uncompress, "Going back"),
        _changing("branch", "go on in a copy; this conversation stays as it is", lineage.branch,
                  "Going back"),
        Command("sessions", "list your conversations, or find one by words", conversations.sessions,
                "Other conversations", usage="[page or words]"),
        _changing("resume", "go back to another conversation of yours", conversations.resume,
                  "Other conversations", "[number or title]"),
        Command("remind", "say something at a time: tomorrow 9:00 call mum", jobs.remind,
                "About me", usage="[when] [what]", stoppable=False),
        Command("jobs", "what is set here to happen by itself; pause or cancel it", jobs.jobs,
                "About me", usage="[pause, resume or cancel number]", stoppable=False),
        Command("whoami", "your id, and this chat's", talk.whoami, "About me"),
        Command("usage", "what your messages took, and what it cost", usage.usage, "About me"),
        Command("memory", "what I remember here", memory.memory, "About me", usage="[page]"),
        Command("forget", "take away one thing that I remember, or all that I hold of you",
                memory.forget, "About me", usage="[id or words | me]", stoppable=False),
        Command("help", "what I can do", help_text, "About me"),
        Command("restart", "start me again; what I am working on goes on afterwards",
                restart.restart, "For admins", admin_only=True, stoppable=False),
    )
}  # fmt: skip
ALIASES: Mapping[str, str] = {
    "start": "help",
    "reset": "new",
    "compact": "compress",
    "fork": "branch",
}


NO_OTHERS: Mapping[str, Command] = {}


def find(name: str, foreign: Mapping[str, Command] = NO_OTHERS) -> Command | None:
    """The command of this name or alias; ``foreign``: those of plugins, which come after ours.

    Some platforms take no hyphen in the name of a command: there ``/a_b`` is ``/a-b``.
    """
    ours = COMMANDS.get(ALIASES.get(name, name))
    return ours or foreign.get(name) or foreign.get(name.replace("_", "-"))


def near(name: str, others: Iterable[str] = ()) -> list[str]:
    """Names that somebody may have meant."""
    import difflib  # noqa: PLC0415 - only for a name that is wrong

    return difflib.get_close_matches(name, [*COMMANDS, *others], n=2, cutoff=0.6)
