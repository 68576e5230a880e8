"""Owns every text that a user reads from the gateway: short, kind, and with the next step."""

from __future__ import annotations

from collections.abc import Sequence

from agent.verdicts import NOTHING

NOTHING_TO_READ = (
    "I could not find anything in that message that I can read. Please write it out, or send it as "
    "a picture or a file."
)
STOPPED = "Stopped."
STOPPED_HERE = "(Stopped here.)"
GOES_ON = "(Interrupted here; I go on in a moment.)"
PART_REFUSED = (
    "A part of that answer was not accepted here, so it is missing. "
    "Please ask me to repeat it in other words."
)
STARTED_ANEW = {
    "idle": "(It has been quiet here for long, so this is a new conversation. /resume leads back.)",
    "daily": "(A new day, so this is a new conversation. /resume leads back.)",
}
JOB_TOO_LONG = (
    "The scheduled job took longer than half an hour, so I have stopped it. "
    "/jobs shows it; ask for less at a time."
)
NOTHING_RUNNING = "Nothing is running right now."
NEW_CONVERSATION = "A new conversation starts here. The old one is kept."
NEW_CONVERSATION_ALONE = (
    "A new conversation starts here. The old one is kept, and I can still look things up in it."
)
"""Where I may: in a direct chat."""
LEAVE_THE_CONSOLE = "Ctrl-D ends the chat."
ADMIN_ONLY = (
    "This conversation is shared, so only an admin of this bot may do that. "
    "Please ask one; /whoami shows your id."
)
NOT_YOUR_COMMAND = (
    "That command is not open to you here. Please ask an admin of this bot; /whoami shows your id."
)
ADMINS_ONLY = "Only an admin of this bot may do that. Please ask one; /whoami shows your id."
RESTARTING = "Restarting. I will say here when I am back."
NOBODY_STARTS_ME_AGAIN = (
    "I do not run under a service manager, so nothing would start me again and I stay. "
    "Please restart me on the server: end `posthouse run` and start it again, or install the "
    "service (`posthouse service install`); then /restart works."
)
NOTHING_TO_RETRY = (
    "There is no message here that I could ask again. Just write it; if a compression has "
    "condensed it, /uncompress brings it back, then /retry can go on."
)
STILL_RUNNING = "Something is still running here. Please wait for it, or end it with /stop first."
MICRO_USAGE = (
    "/micro shows whether older answers are condensed here one by one; /micro on, off or inherit "
    "sets it."
)
NO_CONVERSATION = "There is no conversation here yet. Write something and it begins."
NOTHING_SAID = NOTHING
BUTTON_WITHOUT_USE = "This button does nothing any more. /help shows what I know."
WHOLE_ANSWER = "That was the beginning; the whole answer is in this file."
POSSIBLE_REPEAT = "(This may be a repeat: I could not see whether it arrived.)"
UNRENDERABLE = (
    "I have an answer, but could not put it into a form that this chat takes. "
    "Please ask me to repeat it in plain words."
)
COMMAND_FAILED = "That command failed; the log has the details. Please try it again."
COMMAND_IN_DOUBT = (
    "My storage failed in the middle of that command, so I do not know whether it happened. "
    "/lineage and /sessions show how things are; then please try again."
)
TURN_FAILED = (
    "Something went wrong on my side, and the log has the details. Your message is kept; "
    "/retry asks it again."
)
STORE_TROUBLE = (
    "My storage does not answer right now. Your message is in the queue and I keep trying; "
    "there is no need to send it again."
)
NOT_TAKEN_YET = (
    "My storage does not take anything right now, so I do not have that line yet. I keep trying as "
    "long as this window is open; the log says what is wrong."
)
STORE_TROUBLE_IN_TURN = (
    "My storage failed in the middle of this, so I have no answer. Your message is kept; "
    "/retry asks it again."
)
CONVERSATION_MOVED = (
    "This conversation ended or went on elsewhere while I worked on this, so I have no answer. "
    "Your message is kept; please ask again, or look with /sessions."
)
TOO_OLD_TO_RESUME = (
    "I was interrupted while I worked on this, and that is more than an hour ago, so I have not "
    "gone on by myself. If you still want it, /retry asks it again."
)
SET_ASIDE = (
    "I broke down several times while I worked on this message, so I have set it aside. "
    "Please try again in other words; the conversation is kept."
)
COMMAND_STOPPED = (
    "I do not wait for that any longer, so just write on. If it still comes to an end, its result "
    "is used as long as nothing stands against it."
)
AUTH_TROUBLE = (
    "The model's provider does not accept my key. Your message is kept. "
    "An admin has to check the key on the server; then /retry asks it again."
)
QUOTA_TROUBLE = (
    "The account at the model's provider has no credit left. Your message is kept. "
    "An admin has to look at it; then /retry asks it again."
)
MODEL_MISSING = (
    "The model's provider does not know the configured model. Your message is kept. "
    "An admin has to correct model.name; then /retry asks it again."
)
RATE_LIMITED = (
    "The model's provider is limiting my requests. Your message is kept; "
    "please try again in a few minutes: /retry asks it again."
)
OVERLOADED = (
    "The model is overloaded right now. Your message is kept; "
    "please try again in a few minutes: /retry asks it again."
)
UNREACHABLE = (
    "I could not reach the model. Your message is kept; "
    "please try again in a few minutes: /retry asks it again."
)
OVERFLOW = (
    "This conversation no longer fits into the model's window, and I could not shorten it. "
    "Try /compress, or /new for a fresh start; nothing is lost either way."
)
REQUEST_TOO_LARGE = (
    "That was too large for the model's provider. Please send it in smaller pieces, or start "
    "afresh with /new."
)
BAD_REQUEST = (
    "The model's provider refused the request, and the log has the details. Your message is "
    "kept. If it happens again, /new gives a fresh start."
)


def too_long(chars: int, limit: int) -> str:
    """A message over the limit of characters."""
    return (
        f"That message has {chars:,} characters, and I take at most {limit:,} at once. "
        "Please send it in smaller pieces."
    )


def too_many_tokens(tokens: int, limit: int) -> str:
    """A message that would not leave the model room."""
    return (
        f"That message is about {tokens:,} tokens long, and I take at most {limit:,} at once. "
        "Please send it in smaller pieces."
    )


def pairing_code(code: str, valid_seconds: float) -> str:
    """To a stranger, where pairing is on. Nothing of what they wrote is kept."""
    return (
        "I do not know you yet, so I have not read your message and have not kept it. If you "
        f"should be let in, ask the operator to run `posthouse pair approve {code}` on the "
        f"server within {round(valid_seconds / 60)} minutes, then write again."
    )


def file_left_out(name: str, why: str) -> str:
    """A file that came with a message could not be had; ``name`` as it may be shown."""
    return f"I could not take in “{name}”: {why}."


def files_left_out(notices: Sequence[str]) -> str:
    """All of `file_left_out` for one message, as one text."""
    different = list(dict.fromkeys(notices))
    shown = different[:_LISTED_FILES]
    more = len(notices) - len(shown) if len(different) > len(shown) else 0
    return "\n".join([*shown, *([f"… and {more} more files."] if more else [])])


_LISTED_FILES = 5


def queue_full(limit: int) -> str:
    """The conversation's queue is at its cap; said once until half of it is answered."""
    return (
        f"{limit} messages are waiting here already, so I have not taken this one, and will not "
        "take others until half of them are answered. /stop ends the one that is running."
    )


BUSY_MODES = {
    "queue": "queue: one message after the other, first in, first out",
    "interrupt": "interrupt: a new message ends what I am doing and comes next",
    "steer": "steer: a new message goes into what I am doing, at the next step",
}
"""For /status."""
KEPT_FOR_RESTART = (
    "I am just being restarted. Your message is kept, and I answer it as soon as I am back."
)
WILL_BE_TAKEN_IN = (
    "I am still at work. I take that into what I am doing at the next step, or answer it right "
    "after."
)
JOINED_TOO_LONG = "(Several messages came right behind each other, and I read them as one.)"


def queued(before: int) -> str:
    """A message waits behind the one that is being worked on, and behind so many others."""
    if before == 0:
        return "I am still at work on something here. Your message is in the queue and comes next."
    what = "1 message is" if before == 1 else f"{before} messages are"
    return f"I am still at work on something here. {what} in the queue before yours; none is lost."


def stopped(waiting: int) -> str:
    """Something was running; this many messages come next."""
    if waiting == 0:
        return STOPPED
    what = "1 message is" if waiting == 1 else f"{waiting} messages are"
    return f"{STOPPED} {what} still waiting and will be answered now."


def restarted(version: str, resumed: int) -> str:
    """To those who asked for a restart, after the start."""
    text = f"I am back (posthouse {version})."
    if resumed == 0:
        return text
    what = "1 answer that was interrupted goes" if resumed == 1 else f"{resumed} answers go"
    return f"{text} {what} on now."


def who_and_where(
    owner: str, chat_id: str, thread_id: str | None, platform: str, *, admin: bool
) -> str:
    """The ids that the access lists want."""
    lines = [
        f"You are {owner}{', an admin' if admin else ''}.",
        f"This chat is {chat_id} on {platform}.",
    ]
    if thread_id:
        lines.append(f"This thread is {thread_id}.")
    return "\n".join(lines)


def unknown_setting(word: str, known: Sequence[str]) -> str:
    """A command's word that is none of those it takes; ``word`` as it may be shown."""
    return f"“{word}” is none of {', '.join(known)}."


def unknown_command(name: str, near: Sequence[str]) -> str:
    """A command that does not exist."""
    hint = f" Did you mean {' or '.join(f'/{n}' for n in near)}?" if near else ""
    return f"I do not know /{name}.{hint} /help lists what I know."


def with_wait(text: str, retry_after_seconds: float | None) -> str:
    """The text of a passing trouble, with the time that the provider named, if it is long."""
    if retry_after_seconds is None or not 90 <= retry_after_seconds <= 7 * 86_400:
        return text
    minutes = round(retry_after_seconds / 60)
    return text.replace("in a few minutes", f"in about {minutes:,} minutes")


def late(written: str) -> str:
    """Stands before an answer that is more than a day old."""
    return f"(This is late: I wrote it on {written} and could not send it until now.)"


FILE_NOT_NOW = "it could not be loaded just now; sending it again may help"
FILE_INCOMPLETE = "only a part of it arrived; sending it again may help"
FILE_TOO_SLOW = "loading it took too long; sending it again may help"
FILE_GONE = "the platform does not have it any more; please send it again"
FILE_WITHHELD = "the platform refuses to hand it out at the moment; sending it again may help"
FILE_ODD_PLACE = "the platform names a place for it that I must not load from"
FILE_BEYOND_TELEGRAM = (
    "it is larger than 20 MB, and Telegram gives a bot no larger files; a link or smaller pieces "
    "would work"
)
FILES_TOO_MANY = "those were too many files at once; please send it again on its own"
FILES_TOO_LARGE = "those files were too much at once; please send it again on its own"
FILE_NOT_STORED = "my storage does not take it right now; please send it again later"
FILE_NOT_WAITED_FOR = "loading it was stopped; sending it again would bring it"
"""Why a file is missing: each goes on after a colon."""

FILE_NOT_KEPT = "I do not have it any more; please ask me to make it again"
FILE_EMPTY = "there is nothing in it"
FILE_NOT_TAKEN = "the platform did not take it; please ask me for a smaller one"
FILE_UNREADABLE = "my disk does not give it back; whoever runs this bot finds why in the log"
FILE_STOPPED = "something in front of the platform does not let it through"
FILE_NOT_ALLOWED = "I may not attach files here; whoever runs this server can allow it"
"""Why a file does not go out with an answer: behind a colon as well."""
NOT_LET_IN = (
    "I am sorry, I may not talk with you here. If that should be otherwise, please ask whoever "
    "runs this bot."
)
MENU_OUTDATED = "I do not know that one (any more). /help shows what I do know."
ASKING_AGAIN = "I ask it again."
NOT_TAKEN = "I was stopping just then and could not take that. Please say it again in a moment."
PRIVATE_TOO_LATE = (
    "I was too late to show that answer to you alone, and it is not for everybody here. Please ask "
    "me again."
)


def file_not_sent(name: str, why: str) -> str:
    """A file that belongs to an answer could not go out with it; ``name`` "": it has none."""
    return f"I could not send {f'“{name}”' if name else 'one of the files'}: {why}."


def files_lie_here(names: Sequence[str]) -> str:
    """Where nothing can be sent: kept files that belong to an answer; "": there are none."""
    if not names:
        return ""
    what = "A file belongs" if len(names) == 1 else f"{len(names)} files belong"
    lines = [f"{what} to this answer; the home folder has {'it' if len(names) == 1 else 'them'}:"]
    return "\n".join([*lines, *(f"attachments/{name}" for name in names)])


def file_too_large_to_send(size_bytes: int, limit_bytes: int) -> str:
    """Why a file does not go out with an answer."""
    return (
        f"it has {size_bytes / 1e6:,.3g} MB, and I can send at most {limit_bytes / 1e6:,.3g} MB "
        "here; please ask me for it in smaller pieces"
    )


def file_too_large(limit_bytes: int) -> str:
    """Why a file is missing: it is above what is loaded at all."""
    return (
        f"it is larger than the {limit_bytes / 1e6:,.3g} MB that I load; a smaller one would work"
    )


def stopped_here(so_far: str) -> str:
    """Half an answer that stays as it is."""
    return f"{so_far.rstrip()}\n\n{STOPPED_HERE}" if so_far.strip() else STOPPED_HERE
