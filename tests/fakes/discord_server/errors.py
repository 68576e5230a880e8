"""The Discord REST errors the loopback server answers with: status, JSON code and wording."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """An answer that is an error, in the shape Discord sends it."""

    def __init__(
        self, status: int, code: int, message: str, errors: dict[str, Any] | None = None
    ) -> None:
        super().__init__(f"{status}/{code} {message}")
        self.status = status
        self.code = code
        self.message = message
        self.errors = errors

    def body(self) -> dict[str, Any]:
        """The JSON object of the answer."""
        body: dict[str, Any] = {"message": self.message, "code": self.code}
        if self.errors is not None:
            body["errors"] = self.errors
        return body


def unauthorized() -> ApiError:
    return ApiError(401, 0, "401: Unauthorized")


def not_found() -> ApiError:
    return ApiError(404, 0, "404: Not Found")


def method_not_allowed() -> ApiError:
    return ApiError(405, 0, "405: Method Not Allowed")


def unknown_channel() -> ApiError:
    return ApiError(404, 10003, "Unknown Channel")


def unknown_guild() -> ApiError:
    return ApiError(404, 10004, "Unknown Guild")


def unknown_member() -> ApiError:
    return ApiError(404, 10007, "Unknown Member")


def unknown_message() -> ApiError:
    return ApiError(404, 10008, "Unknown Message")


def unknown_user() -> ApiError:
    return ApiError(404, 10013, "Unknown User")


def unknown_emoji() -> ApiError:
    return ApiError(400, 10014, "Unknown Emoji")


def unknown_webhook() -> ApiError:
    return ApiError(404, 10015, "Unknown Webhook")


def unknown_interaction() -> ApiError:
    return ApiError(404, 10062, "Unknown interaction")


def already_acknowledged() -> ApiError:
    return ApiError(400, 40060, "Interaction has already been acknowledged.")


def missing_access() -> ApiError:
    return ApiError(403, 50001, "Missing Access")


def dm_action() -> ApiError:
    return ApiError(403, 50003, "Cannot execute action on a DM channel")


def not_the_author() -> ApiError:
    return ApiError(403, 50005, "Cannot edit a message authored by another user")


def empty_message() -> ApiError:
    return ApiError(400, 50006, "Cannot send an empty message")


def cannot_dm() -> ApiError:
    return ApiError(403, 50007, "Cannot send messages to this user")


def missing_permissions() -> ApiError:
    return ApiError(403, 50013, "Missing Permissions")


def invalid_webhook_token() -> ApiError:
    return ApiError(401, 50027, "Invalid Webhook Token")


def invalid_recipients() -> ApiError:
    return ApiError(400, 50033, "Invalid Recipient(s)")


def archived_thread() -> ApiError:
    return ApiError(400, 50083, "Thread is archived")


def invalid_json() -> ApiError:
    return ApiError(400, 50109, "The request body contains invalid JSON.")


def invalid_form(field: str, code: str, message: str) -> ApiError:
    """50035 with the tree of reasons; `field` may be dotted (`embeds.0.title`)."""
    tree: dict[str, Any] = {"_errors": [{"code": code, "message": message}]}
    for part in reversed(field.split(".")):
        tree = {part: tree}
    return ApiError(400, 50035, "Invalid Form Body", tree)


def too_long(field: str, limit: int) -> ApiError:
    return invalid_form(field, "BASE_TYPE_MAX_LENGTH", f"Must be {limit} or fewer in length.")


def not_a_snowflake(field: str, value: object) -> ApiError:
    return invalid_form(field, "NUMBER_TYPE_COERCE", f'Value "{value}" is not snowflake.')
