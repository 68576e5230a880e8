"""Owns the shape of ``agent.tools.mcp``: servers by name, as other hosts write them too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_SERVERS = 32
_NAME = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")
MAX_NAME_CHARS = 24
"""The names of its tools begin with it, and providers take 64 characters."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET = re.compile("key|token|secret|password|auth|credential", re.IGNORECASE)


def _numbers_are_texts(value: Any) -> Any:
    """Numbers are texts here; a truth value may have been meant as yes, on or true."""
    if not isinstance(value, dict):
        return value
    return {
        k: str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v
        for k, v in value.items()
    }


def _plain(value: str) -> str:
    if "\x00" in value:
        raise ValueError("can not hold a NUL character")
    return value


def _no_breaks(value: str) -> str:
    if any(ch in value for ch in "\r\n\x00"):
        raise ValueError("must be one line")
    return value


def _whole_address(value: str) -> str:
    try:
        parts = urlsplit(value)
        sound = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not value.isprintable() or " " in value:
        raise ValueError("must be a whole address, such as https://mcp.example.org/mcp")
    if "@" in parts.netloc:
        raise ValueError("must not hold a password; put it into headers, as ${NAME}")
    return value


Word = Annotated[str, AfterValidator(_plain)]
Line = Annotated[str, AfterValidator(_no_breaks)]


class McpServer(BaseModel):
    """One MCP server: a program that is started, or an address."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    enabled: bool = True
    """false: as if it did not stand here."""
    command: Word | list[Word] | None = None
    """The program that is started; this or url."""
    args: list[Word] = []
    """What it is started with."""
    env: Annotated[dict[str, Word], BeforeValidator(_numbers_are_texts)] = {}
    """Variables for it; secrets as ${NAME}, from the environment."""
    cwd: Word | None = None
    """Where it is started; null: a folder of its own in the home."""
    type: Literal["stdio", "http", "streamable-http"] | None = None
    """As other hosts write it; it has to fit to command or url."""
    url: Annotated[str, AfterValidator(_whole_address)] | None = None
    """A server elsewhere; this or command."""
    headers: Annotated[dict[str, Line], BeforeValidator(_numbers_are_texts)] = {}
    """What is sent along with each request; secrets as ${NAME}, from the environment."""
    timeout_seconds: float = Field(60, ge=1, le=3600)
    """For one call."""
    approve: Literal["always", "never", "writes"] | list[str] = "writes"
    """Before which tools a person is asked; writes: before all that does not only read."""
    tools: list[str] | None = None
    """Only these of its tools; null: all."""

    @property
    def words(self) -> list[str]:
        """The command and its arguments."""
        if isinstance(self.command, list):
            return [*self.command, *self.args]
        command = self.command or ""
        return [command, *self.args] if self.args else shlex.split(command)

    @property
    def is_program(self) -> bool:
        """Is it started here?"""
        return self.command is not None

    def references(self) -> list[str]:
        """The names of all ``${NAME}`` in it."""
        return list(dict.fromkeys(n for text in self._texts() for n in _REFERENCE.findall(text)))

    def secrets(self) -> Iterator[str]:
        """What stands in the file itself, and should better not."""
        named = [*self.headers.items(), *((k, v) for k, v in self.env.items() if _SECRET.search(k))]
        return (value for _, value in named if not _REFERENCE.search(value))

    def _texts(self) -> Iterator[str]:
        yield from self.args
        yield from self.command if isinstance(self.command, list) else [self.command or ""]
        yield from self.env.values()
        yield from self.headers.values()
        yield self.url or ""

    @model_validator(mode="after")
    def _one_way(self) -> McpServer:
        if (self.command is None) == (self.url is None):
            raise ValueError(
                "needs either command (a program that is started) or url (a server elsewhere)"
            )
        if self.type == "stdio" and self.url is not None:
            raise ValueError("type is stdio, so it needs command, not url")
        if self.type not in (None, "stdio") and self.command is not None:
            raise ValueError(f"type is {self.type}, so it needs url, not command")
        program = ("args", "env", "cwd") if self.url is not None else ("headers",)
        for key in program:
            if getattr(self, key):
                other = "url" if self.url is not None else "command"
                raise ValueError(f"{key} has no meaning beside {other}")
        try:
            words = self.words
        except ValueError as exc:
            raise ValueError(f"command: {exc}") from exc
        if self.command is not None and not (words and words[0].strip()):
            raise ValueError("command is empty")
        for name in self.env:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"env: {name!r} is no name of a variable")
        for name in self.headers:
            if not _HEADER.fullmatch(name):
                raise ValueError(f"headers: {name!r} is no name of a header")
        return self


def _servers(value: dict[str, McpServer]) -> dict[str, McpServer]:
    for name in value:
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
            raise ValueError(
                f"{name[:60]!r} is no name for a server: letters, digits and single - or _ "
                f"between them, {MAX_NAME_CHARS} at most"
            )
    if len(value) > MAX_SERVERS:
        raise ValueError(f"more than {MAX_SERVERS} servers")
    return value


McpServerMap = Annotated[dict[str, McpServer], AfterValidator(_servers)]


def filled(text: str, values: dict[str, str]) -> str:
    """The text with its ``${NAME}`` in place; all of them are known."""
    return _REFERENCE.sub(lambda match: values[match[1]], text)
