"""Owns the recognition of secrets in text; whatever leaves for a model or a log goes through here.

Redact first, cut afterwards: half a key is still a leak, and no pattern knows it any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

REDACTED = "[REDACTED]"

_EDGE = r"(?:(?<![A-Za-z0-9_\-])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"
"""A key starts where no word is running; what JSON writes for a line break is no word."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A kind of secret. ``hints``: one of these must be in the text, or the regex need not run.

    A hint in lower case is looked for without regard to case.
    """

    hints: tuple[str, ...]
    regex: re.Pattern[str]
    replacement: str | Callable[[re.Match[str]], str] = REDACTED
    any_case: bool = False
    gate: re.Pattern[str] | None = None
    """A cheaper regex that has to match the text in lower case first."""


def _prefixed(*prefixes: str, body: str = r"[A-Za-z0-9_\-]{16,}") -> _Pattern:
    alternatives = "|".join(re.escape(p) for p in prefixes)
    return _Pattern(prefixes, re.compile(rf"{_EDGE}(?:{alternatives}){body}"))


_SECRET_WORD = (
    r"(?:api[_\-]?key|apikey|access[_\-]?key|secret[_\-]?key|private[_\-]?key|encryption[_\-]?key"
    r"|client[_\-]?secret|secret|password|passwd|passphrase|pwd|passwort|auth[_\-]?token"
    r"|access[_\-]?token|refresh[_\-]?token|id[_\-]?token|session[_\-]?token|bot[_\-]?token"
    r"|token|credentials?|密码|密碼|パスワード)"
)
_VALUE_HINTS = (
    "key",
    "secret",
    "passw",
    "passphrase",
    "pwd",
    "token",
    "credential",
    "密码",
    "密碼",
    "パスワード",
)
_VALUE_GATE = re.compile(
    r"(?:key|secret|passw(?:or[dt]|d)|passphrase|pwd|token|credentials?|密码|密碼|パスワード)"
    r"(?:[_\-][a-z0-9]{1,12})?[\\\"'\s]{0,6}[=:：]"
)
_HARMLESS = re.compile(
    r"\A(?:\[REDACTED\]|true|false|null|none|nil|undefined|required|optional|string|str|int|\d{1,5}"
    r"|[<{$%*.…(].*)\Z",
    re.IGNORECASE,
)
"""What stands behind ``token:`` without being one: types, numbers, placeholders, variables."""


def _keep_name(match: re.Match[str]) -> str:
    """Replace the value, keep the name and the quotes."""
    value = match.group("value")
    if _HARMLESS.match(value):
        return match.group(0)
    return f"{match.group('name')}{REDACTED}{match.groupdict().get('end') or ''}"


_PATTERNS: tuple[_Pattern, ...] = (
    _Pattern(
        ("PRIVATE KEY",),
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:.*?-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"|[A-Za-z0-9+/=\s\\:,\-]*)",
            re.DOTALL,
        ),
    ),
    _prefixed("sk-ant-", body=r"[A-Za-z0-9_\-]{3,}"),
    _prefixed("sk-"),
    _prefixed("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    _prefixed("glpat-", "gldt-", "glrt-"),
    _prefixed("xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xapp-", body=r"[A-Za-z0-9\-]{10,}"),
    _prefixed("AKIA", "ASIA", "ABIA", body=r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _prefixed("AIza", body=r"[A-Za-z0-9_\-]{35}"),
    _prefixed("ya29.", body=r"[A-Za-z0-9_\-.]{20,}"),
    _prefixed("sk_live_", "sk_test_", "rk_live_", "rk_test_", "whsec_", body=r"[A-Za-z0-9]{16,}"),
    _prefixed("hf_", "gsk_", "xai-", "pplx-", "r8_", "nvapi-", body=r"[A-Za-z0-9_\-]{20,}"),
    _prefixed("npm_", "pypi-", "dop_v1_", "tskey-", "AGE-SECRET-KEY-1", "lin_api_", "ntn_"),
    _prefixed("SG.", body=r"[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}"),
    # JSON Web Token: three base64url parts, the first one an object
    _prefixed("eyJ", body=r"[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?"),
    # Telegram bot token
    _Pattern((":AA", ":A"), re.compile(r"(?<![\w])(?:bot)?\d{6,12}:A[A-Za-z0-9_\-]{33,}")),
    # Discord bot token
    _Pattern(
        ("M", "N", "O"),
        re.compile(
            rf"{_EDGE}[MNO][A-Za-z0-9_\-]{{22,27}}\.[A-Za-z0-9_\-]{{6}}\.[A-Za-z0-9_\-]{{27,}}"
        ),
    ),
    _Pattern(
        ("discord", "slack.com/services"),
        re.compile(
            r"(?P<name>(?:discord(?:app)?\.com/api/webhooks/\d+/|hooks\.slack\.com/services/))"
            r"(?P<value>[A-Za-z0-9_\-/]{16,})"
        ),
        _keep_name,
    ),
    # user:password@host in any URL or connection string
    _Pattern(
        ("://",),
        re.compile(
            r"(?P<name>[A-Za-z][A-Za-z0-9+.\-]{1,30}://[^\s/:@\"'<>]{0,128}:)"
            r"(?P<value>[^\s/\"'<>]{1,256})(?P<end>@)"
        ),
        _keep_name,
    ),
    # https://token@host
    _Pattern(
        ("://",),
        re.compile(r"(?P<name>https?://)(?P<value>[A-Za-z0-9_\-]{20,})(?P<end>@)"),
        _keep_name,
    ),
    _Pattern(
        ("authorization",),
        re.compile(
            r"(?P<name>\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?"
            r"(?:(?:bearer|basic|token|bot|digest)\s+)?)(?P<value>[^\s\"',;\\]{6,})",
            re.IGNORECASE,
        ),
        _keep_name,
        any_case=True,
    ),
    _Pattern(
        ("bearer",),
        re.compile(r"(?P<name>\bbearer\s+)(?P<value>[A-Za-z0-9_\-.=+/~]{16,})", re.IGNORECASE),
        _keep_name,
        any_case=True,
    ),
    _Pattern(
        ("cookie",),
        re.compile(r"(?P<name>\b(?:set-)?cookie\s*:\s*)(?P<value>[^\r\n\"']{8,})", re.IGNORECASE),
        _keep_name,
        any_case=True,
    ),
    # ?token=…&sig=… in a URL
    _Pattern(
        ("token=", "key=", "sig=", "signature=", "secret=", "password=", "code="),
        re.compile(
            r"(?P<name>[?&](?:[a-z_\-]*token|[a-z_\-]*key|sig|x-amz-signature|signature"
            r"|[a-z_\-]*secret|password|code)=)(?P<value>[^\s&#\"'<>]{6,})",
            re.IGNORECASE,
        ),
        _keep_name,
        any_case=True,
    ),
    # "password": "…" in JSON, also escaped inside a JSON string
    _Pattern(
        _VALUE_HINTS,
        re.compile(
            rf"(?P<name>\\?[\"'][A-Za-z0-9_\-.]{{0,40}}{_SECRET_WORD}\\?[\"']\s*:\s*\\?[\"'])"
            r"(?P<value>(?:[^\"'\\\r\n]|\\(?![\"'])){3,}?)(?P<end>\\?[\"'])",
            re.IGNORECASE,
        ),
        _keep_name,
        any_case=True,
        gate=_VALUE_GATE,
    ),
    # NAME_TOKEN=…, password: …
    _Pattern(
        _VALUE_HINTS,
        re.compile(
            rf"(?P<name>{_SECRET_WORD}(?:[_\-][A-Za-z0-9]{{1,12}})?\s{{0,3}}[=:：]\s{{0,3}}[\"'`]?)"
            r"(?P<value>[^\s\"'`,;\\]{6,})",
            re.IGNORECASE,
        ),
        _keep_name,
        any_case=True,
        gate=_VALUE_GATE,
    ),
    # my password is …: only what looks like one
    _Pattern(
        tuple(
            f"{word} is "
            for word in (
                "key",
                "secret",
                "password",
                "passwd",
                "passphrase",
                "pwd",
                "token",
                "credential",
                "credentials",
            )
        ),
        re.compile(
            rf"(?P<name>{_SECRET_WORD} is [\"'`]?)(?P<value>(?=[^\s]*\d)[^\s\"'`,;\\]{{6,}})",
            re.IGNORECASE,
        ),
        _keep_name,
        any_case=True,
    ),
    _Pattern(
        ("--pass", "--token", "--secret", "--api", "--auth"),
        re.compile(
            rf"(?P<name>--{_SECRET_WORD}\s+[\"']?)(?P<value>[^\s\"'\-][^\s\"']{{3,}})",
            re.IGNORECASE,
        ),
        _keep_name,
        any_case=True,
    ),
)


def redact_sensitive_text(text: object, *, force: bool = True) -> str:
    """The text with every recognised secret replaced by ``[REDACTED]``; names beside them stay.

    Doing it twice changes nothing more. Anything but a string is turned into one first.

    Args:
        text: What may hold secrets.
        force: Accepted for plugins; redaction can not be switched off here.
    """
    clean: str = "" if text is None else str(text)
    if len(clean) < 8:
        return clean
    lowered = clean.lower()
    for pattern in _PATTERNS:
        where = lowered if pattern.any_case else clean
        for hint in pattern.hints:  # a plain loop: this runs over every text there is
            if hint in where:
                if pattern.gate is not None and pattern.gate.search(lowered) is None:
                    break
                clean = pattern.regex.sub(pattern.replacement, clean)
                break
    return clean
