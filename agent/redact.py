"""Owns the recognition of secrets in text; whatever leaves for a model or a log goes through here.

Redact first, cut afterwards: half a key is still a leak, and no pattern knows it any more.

Every kind of secret is known by a literal that stands in it or before it, its anchor. Texts are
searched for anchors, which takes next to nothing, and an expression is only tried where one was
found: the time grows with the length of the text whatever is in it, and no single call of an
expression runs over all of a large one (it would keep every other thread waiting).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

REDACTED = "[REDACTED]"

_EDGE = r"(?:(?<![A-Za-z0-9_\-])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
"""A key starts where no word is running; what JSON writes for a line break is no word."""
_WORD = r"(?:(?<!\w)|(?<=\\[nrtbf]))"
"""A word starts here."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of secret.

    What is redacted is the group ``value`` of its expression, or else the whole match.
    """

    anchors: tuple[str, ...]
    regex: re.Pattern[str]
    """Tried where an anchor begins."""
    any_case: bool = False
    """Anchors and expressions are in lower case, and so is the text that they are tried on."""


def _prefixed(*prefixes: str, body: str = r"[A-Za-z0-9_\-]{16,}") -> _Kind:
    alternatives = "|".join(re.escape(p) for p in prefixes)
    return _Kind(prefixes, re.compile(rf"{_EDGE}(?:{alternatives}){body}"))


_DISCORD_ID = "|".join(rf"(?<=[MNO][A-Za-z0-9_\-]{{{length}}}\.)" for length in range(22, 28))

_SECRET_NAMES = (
    "key",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "passwort",
    "pwd",
    "token",
    "credential",
    "密码",
    "密碼",
    "パスワード",
)
"""The word with which the name of a secret ends."""
_KEY_OWNERS = ("api", "access", "secret", "private", "encryption")
"""Of all keys these are secret."""
_KEY = "|".join(rf"(?<={owner})|(?<={owner}[_\-])" for owner in _KEY_OWNERS)
_NAME = (
    rf"(?:(?:{_KEY})key|secret|password|passwd|passphrase|passwort|pwd|token|credentials?"
    r"|密码|密碼|パスワード)"
)
_FLAG_NAME = (
    rf"(?:(?:{'|'.join(_KEY_OWNERS)})[_\-]?key"
    r"|(?:client[_\-]?)?secret|password|passwd|passphrase|passwort|pwd"
    r"|(?:(?:auth|access|refresh|id|session|bot)[_\-]?)?token|credentials?|密码|密碼|パスワード)"
)
_HARMLESS = re.compile(
    r"\A(?:\[REDACTED\]\W*|true|false|null|none|nil|undefined|required|optional|string|str|int|\d{1,5}"
    r"|[<{$%*.…(].*)\Z",
    re.IGNORECASE,
)
"""What stands behind ``token:`` without being one: types, numbers, placeholders, variables."""


_KINDS: tuple[_Kind, ...] = (
    _prefixed("sk-ant-", body=r"[A-Za-z0-9_\-]{3,}"),
    _prefixed("sk-"),
    _prefixed("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    _prefixed("glpat-", "gldt-", "glrt-"),
    _prefixed("xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xapp-", body=r"[A-Za-z0-9\-]{10,}"),
    _prefixed("AKIA", "ASIA", "ABIA", body=r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _prefixed("AIza", body=r"[A-Za-z0-9_\-]{35,}"),
    _prefixed("ya29.", body=r"[A-Za-z0-9_\-.]{20,}"),
    _prefixed("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", body=r"[A-Za-z0-9]{16,}"),
    _prefixed("hf_", "gsk_", "xai-", "pplx-", "r8_", "nvapi-", body=r"[A-Za-z0-9_\-]{20,}"),
    _prefixed("npm_", "pypi-", "dop_v1_", "tskey-", "AGE-SECRET-KEY-1", "lin_api_", "ntn_"),
    _prefixed("SG.", body=r"[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}"),
    # JSON Web Token: three base64url parts, the first one an object
    _prefixed("eyJ", body=r"[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?"),
    # Telegram bot token; the number before it is public
    _Kind((":A",), re.compile(r"(?<=\d{6}):(?P<value>A[A-Za-z0-9_\-]{33,})")),
    # Discord bot token; the part before the first dot is the public id
    _Kind(
        (".",),
        re.compile(
            r"\.(?=[A-Za-z0-9_\-]{6}\.)"
            rf"(?:{_DISCORD_ID})"
            r"(?P<value>[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,})"
        ),
    ),
    _Kind(
        ("discord.com/api/webhooks/", "discordapp.com/api/webhooks/", "hooks.slack.com/services/"),
        re.compile(
            r"(?:discord(?:app)?\.com/api/webhooks/\d+/|hooks\.slack\.com/services/)"
            r"(?P<value>[a-z0-9_\-/]{16,})"
        ),
        any_case=True,
    ),
    # user:password@host in any URL or connection string
    _Kind(
        ("://",),
        re.compile(
            r"(?<=[A-Za-z0-9+.\-]{2})://[^\s/:@\"'<>]{0,128}:(?P<value>[^\s/\"'<>]{1,256})@"
        ),
    ),
    # https://token@host
    _Kind(
        ("http://", "https://"),
        re.compile(r"https?://(?P<value>[a-z0-9_\-]{20,})@"),
        any_case=True,
    ),
    _Kind(
        ("authorization",),
        re.compile(
            rf"{_WORD}authorization[\"']?\s*[:=]\s*[\"']?"
            r"(?:(?:bearer|basic|token|bot|digest)\s+)?(?P<value>[^\s\"',;\\]{6,})"
        ),
        any_case=True,
    ),
    _Kind(
        ("bearer",),
        re.compile(rf"{_WORD}bearer\s+(?P<value>[a-z0-9_\-.=+/~]{{16,}})"),
        any_case=True,
    ),
    _Kind(
        ("cookie",),
        re.compile(rf"{_WORD}cookie\s*:\s*(?P<value>[^\r\n\"']{{8,}})"),
        any_case=True,
    ),
    # ?token=…&sig=… in a URL
    _Kind(
        ("?", "&"),
        re.compile(
            r"[?&](?:[a-z_\-]*(?:token|key|secret)|(?:x-amz-)?signature|sig|password|code)="
            r"(?P<value>[^\s&#\"'<>]{6,})"
        ),
        any_case=True,
    ),
    # "password": "…" in JSON, also escaped inside a JSON string
    _Kind(
        _SECRET_NAMES,
        re.compile(
            rf"{_NAME}\\?[\"']\s*:\s*\\?[\"']"
            r"(?P<value>(?:[^\"'\\\r\n]|\\(?![\"'])){3,}?)\\?[\"']"
        ),
        any_case=True,
    ),
    # NAME_TOKEN=…, password: …
    _Kind(
        _SECRET_NAMES,
        re.compile(
            rf"{_NAME}(?:[_\-][a-z0-9]{{1,12}})?\s{{0,3}}[=:：]\s{{0,3}}[\"'`]?"
            r"(?P<value>[^\s\"'`,;\\]{6,})"
        ),
        any_case=True,
    ),
    # my password is …: only what looks like one
    _Kind(
        _SECRET_NAMES,
        re.compile(rf"{_NAME} is [\"'`]?(?P<value>(?=[^\s]*\d)[^\s\"'`,;\\]{{6,}})"),
        any_case=True,
    ),
    _Kind(
        ("--",),
        re.compile(rf"--{_FLAG_NAME}\s+[\"']?(?P<value>[^\s\"'\-][^\s\"']{{3,}})"),
        any_case=True,
    ),
)


def redact_sensitive_text(text: object, *, force: bool = True, **options: object) -> str:
    """The text with every recognised secret replaced by ``[REDACTED]``; names beside them stay.

    Doing it twice changes nothing more. Anything but a string is turned into one first.

    Args:
        text: What may hold secrets.
        force: Accepted for plugins; redaction can not be switched off here.
        options: Accepted for plugins: nothing makes it more lenient.
    """
    clean: str = "" if text is None else str(text)
    if len(clean) < 8:
        return clean
    clean = _without_private_keys(clean)
    lowered = _lowered(clean)
    for kind in _KINDS:
        for anchor in kind.anchors:  # plain loops: this runs over every text there is
            if anchor in (lowered if kind.any_case else clean):
                found = _found(kind, anchor, clean, lowered)
                if found:
                    clean = _replaced(clean, found)
                    lowered = _lowered(clean)
    return clean


def _lowered(text: str) -> str:
    """The text in lower case, every character at its place."""
    if not text.isascii():
        # İ would become two characters; ſ is an s to everybody but `lower`.
        text = text.replace("İ", "I").replace("ſ", "s")
    return text.lower()


def _found(kind: _Kind, anchor: str, clean: str, lowered: str) -> list[tuple[int, int]]:
    """Where the secrets of a kind are, in order."""
    where = lowered if kind.any_case else clean
    by_value = "value" in kind.regex.groupindex
    found: list[tuple[int, int]] = []
    at = where.find(anchor)
    while at >= 0:
        match = kind.regex.match(where, at)
        if match is None:
            at = where.find(anchor, at + 1)
            continue
        start, stop = match.span("value") if by_value else match.span()
        if not _HARMLESS.match(clean[start:stop]):
            found.append((start, stop))
        at = where.find(anchor, match.end())
    return found


def _replaced(text: str, spans: list[tuple[int, int]]) -> str:
    parts: list[str] = []
    end = 0
    for start, stop in spans:
        parts += (text[end:start], REDACTED)
        end = stop
    return "".join((*parts, text[end:]))


_KEY_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=\s\\:,\-]*")


def _without_private_keys(text: str) -> str:
    """The text without PEM blocks; one without an end goes as far as it looks like a key."""
    if "PRIVATE KEY" not in text:
        return text
    ends = _KEY_END.finditer(text)
    end = next(ends, None)
    found: list[tuple[int, int]] = []
    stop = 0
    while (begin := _KEY_BEGIN.search(text, stop)) is not None:
        while end is not None and end.start() < begin.end():
            end = next(ends, None)
        if end is not None:
            stop = end.end()
        elif body := _KEY_BODY.match(text, begin.end()):
            stop = body.end()
        found.append((begin.start(), stop))
    return _replaced(text, found)
