"""Owns the kinds of values in config.yaml, and what every section has in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    WithJsonSchema,
    model_validator,
)

from gateway.fetching.named import NamedHosts

_ID = re.compile(r"-?[1-9][0-9]{0,19}", re.ASCII)
"""One way to write each number, so that equal ids are equal texts."""


def plain_id(text: str) -> str | None:
    """A numeric id in the one form that counts; None: it is none."""
    text = text.strip()
    return text if _ID.fullmatch(text) else None


def _ids(value: Any) -> Any:
    """Numeric ids as text; nothing, an empty text and null entries mean nobody."""
    if value is None or value == "":
        return []
    if not isinstance(value, list):
        raise ValueError('must be a list of numeric ids, for example [123456789], or ["*"]')
    ids: list[str] = []
    wrong: list[str] = []
    for item in value:
        if item is None or item == "":
            continue
        text = str(item).strip()
        found = text if text == "*" else plain_id(text)
        if isinstance(item, bool) or found is None:
            wrong.append(repr(item))
        else:
            ids.append(found)
    if wrong:
        what = f"{wrong[0]} is no numeric id" if len(wrong) == 1 else f"{_listed(wrong)} are no ids"
        raise ValueError(
            f"{what} such as 123456789 or -1001234567890 (names change hands, ids do not)"
        )
    return ids


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _no_wildcard(value: list[str]) -> list[str]:
    if "*" in value:
        raise ValueError('"*" is only possible in allow_from')
    return value


def off_is_text(value: Any) -> Any:
    """YAML reads a bare ``off`` as false."""
    return "off" if value is False else value


def upper(value: Any) -> Any:
    """A word in any case."""
    return value.upper() if isinstance(value, str) else value


def _switch(value: Any) -> Any:
    if value != "auto" and not isinstance(value, bool):
        raise ValueError("must be auto, true or false")
    return value


def bare(value: str) -> str:
    """An address behind which a path is put."""
    if "?" in value or "#" in value:
        raise ValueError("must be a plain address, without ? and #: a path is put behind it")
    return value


def _address(*schemes: str) -> AfterValidator:
    def check(value: str) -> str:
        try:
            parts = urlsplit(value)
            sound = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            sound = False
        if not sound or not value.isprintable() or " " in value:
            raise ValueError(f"must be a whole address, such as {schemes[0]}://example.org")
        return value

    return AfterValidator(check)


HttpAddress = Annotated[str, _address("https", "http")]
SocketAddress = Annotated[str, _address("wss", "ws")]
Switch = Annotated[Literal["auto"] | bool, BeforeValidator(_switch)]
NumberOrText = WithJsonSchema({"type": ["integer", "string"]})
"""For editors: what is a text here may be written as a number as well."""
_OF_IDS = WithJsonSchema(
    {"type": ["array", "null"], "items": {"type": ["integer", "string", "null"]}}
)
Ids = Annotated[list[str], BeforeValidator(_ids), _OF_IDS]
PlainIds = Annotated[list[str], BeforeValidator(lambda v: _no_wildcard(_ids(v))), _OF_IDS]


def _hosts(value: list[str]) -> list[str]:
    NamedHosts.parsed(value)
    return value


HostList = Annotated[list[str], AfterValidator(_hosts)]
"""Hosts with or without a port (`gateway.fetching.named`)."""


class Section(BaseModel):
    """Base of all sections: an unknown key or a wrong type is an error.

    The words below a key are its description in the JSON schema (`gateway.config.schema`).
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_section(cls, data: Any) -> Any:
        """`section:` with nothing below it means its defaults."""
        return {} if data is None else data
