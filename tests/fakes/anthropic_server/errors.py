"""Owns the error envelope of the fake API: status codes, error types, and the raised ApiError."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

ERROR_TYPES: dict[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}

DEFAULT_MESSAGES: dict[int, str] = {
    400: "invalid request",
    401: "invalid x-api-key",
    402: "Your credit balance is too low to access the Anthropic API.",
    403: "Your API key does not have permission to use the specified resource.",
    404: "Not found",
    408: "Request timed out",
    409: "The request conflicts with the current state of the resource.",
    413: "Request exceeds the maximum size",
    422: "Unprocessable request",
    429: "This request would exceed your organization's rate limit.",
    500: "Internal server error",
    503: "Service unavailable",
    504: "Gateway timeout",
    529: "Overloaded",
}


def error_type(status: int) -> str:
    """The wire error type for an HTTP status."""
    return ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def error_envelope(kind: str, message: str, request_id: str, code: str = "") -> dict[str, object]:
    """The body of every error answer, also the data of an in-band `error` event."""
    error: dict[str, object] = {"type": kind, "message": message}
    if code:
        error["details"] = {"error_code": code}
    return {"type": "error", "error": error, "request_id": request_id}


@dataclass
class ApiError(Exception):
    """A refusal by the API; `rule` names what was broken ("" for limits and faults)."""

    status: int
    message: str
    rule: str = ""
    kind: str = ""
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    request_id: str = "req_unknown"

    def __post_init__(self) -> None:
        super().__init__(self.message)
        self.kind = self.kind or error_type(self.status)

    def body(self) -> bytes:
        """The encoded envelope."""
        envelope = error_envelope(self.kind, self.message, self.request_id, self.code)
        return json.dumps(envelope).encode()


def broken(rule: str, message: str) -> ApiError:
    """A 400 for a broken request rule."""
    return ApiError(400, message, rule=rule)
