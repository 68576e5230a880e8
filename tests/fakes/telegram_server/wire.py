"""The wire form of the Bot API: envelopes, errors, and parameters from all four encodings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

Json = dict[str, Any]


def words(text: str) -> frozenset[str]:
    """A set of names written as one line of text."""
    return frozenset(text.split())


class ApiError(Exception):
    """An error answer; the HTTP status is the error code."""

    def __init__(self, code: int, description: str, parameters: Json | None = None) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def body(self) -> Json:
        body: Json = {"ok": False, "error_code": self.code, "description": self.description}
        if self.parameters:
            body["parameters"] = self.parameters
        return body


def bad_request(text: str) -> ApiError:
    """A 400 with the platform's prefix."""
    return ApiError(400, f"Bad Request: {text}")


def forbidden(text: str) -> ApiError:
    """A 403 with the platform's prefix."""
    return ApiError(403, f"Forbidden: {text}")


def flood(retry_after: int) -> ApiError:
    """A 429 that says how long to wait."""
    text = f"Too Many Requests: retry after {retry_after}"
    return ApiError(429, text, {"retry_after": retry_after})


@dataclass
class Upload:
    """One file part of a multipart request."""

    name: str
    data: bytes
    mime: str


@dataclass
class Params:
    """The parameters of one call, whatever way they came."""

    values: Json = field(default_factory=dict)
    files: dict[str, Upload] = field(default_factory=dict)

    def text(self, name: str, default: str = "") -> str:
        """A string; a lone surrogate cannot be UTF-8 and is refused as the platform does."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return "true" if value else "false"
        text = value if isinstance(value, str) else json.dumps(value)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise bad_request("strings must be encoded in UTF-8") from None
        return text

    def integer(self, name: str, default: int = 0) -> int:
        """An integer; what is none counts as the default."""
        try:
            return int(self.text(name))
        except ValueError:
            return default

    def flag(self, name: str) -> bool:
        """A boolean in any of the spellings the platform takes."""
        return self.text(name).strip().lower() in {"true", "yes", "1"}

    def parsed(self, name: str, what: str) -> Any:
        """A JSON-valued parameter, or None when it is absent or empty."""
        value = self.values.get(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise bad_request(f"can't parse {what} JSON object") from None

    def chat_id(self) -> int | None:
        """The numeric chat of the call, for records and per-chat faults."""
        try:
            return int(self.text("chat_id"))
        except (ValueError, ApiError):
            return None


async def read_params(request: web.Request) -> Params:
    """Collect query and body parameters; the body wins."""
    params = Params(_pairs(request.rel_url.raw_query_string))
    kind = request.content_type
    if kind == "multipart/form-data":
        await _read_multipart(request, params)
    elif kind == "application/json":
        params.values.update(_json_object(await request.read()))
    elif kind == "application/x-www-form-urlencoded":
        params.values.update(_pairs((await request.read()).decode("utf-8", "surrogateescape")))
    return params


def _pairs(encoded: str) -> Json:
    # surrogateescape keeps invalid UTF-8 visible, so that it is refused and not repaired
    return dict(parse_qsl(encoded, keep_blank_values=True, errors="surrogateescape"))


def _json_object(raw: bytes) -> Json:
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw)
    except ValueError:
        raise bad_request("can't parse request body JSON object") from None
    if not isinstance(value, dict):
        raise bad_request("expected an Object in the request body")
    return value


async def _read_multipart(request: web.Request, params: Params) -> None:
    async for part in await request.multipart():
        name = getattr(part, "name", None)
        if name is None:
            continue
        data = bytes(await part.read())
        if part.filename is None:
            params.values[name] = data.decode("utf-8", "surrogateescape")
        else:
            mime = part.headers.get("Content-Type", "application/octet-stream")
            params.files[name] = Upload(part.filename, data, mime)
