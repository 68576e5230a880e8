"""What Discord has against the form of things: commands, components, files."""

from __future__ import annotations

import re
from typing import Any

from tests.fakes.discord_server import errors
from tests.fakes.discord_server.errors import ApiError

_MB = 1 << 20
FILE_LIMITS = {0: 10 * _MB, 1: 10 * _MB, 2: 50 * _MB, 3: 100 * _MB}
"""Of one file, by what a guild's members pay for."""
MAX_FILES = 10
_COMMAND_NAME = re.compile(r"[-_'\w]{1,32}")
_ROW, _BUTTON = 1, 2
_LINK, _PREMIUM = 5, 6


def command_problem(commands: Any) -> ApiError | None:
    """What Discord has against a set of commands, as far as it is modelled."""
    if not isinstance(commands, list):
        return errors.invalid_form("_errors", "LIST_TYPE_CONVERT", "Only iterables may be used.")
    if len(commands) > 100:
        return ApiError(400, 30032, "Maximum number of application commands reached (100).")
    seen = set()
    for index, command in enumerate(commands):
        name, kind = str(command.get("name", "")), int(command.get("type", 1))
        if kind == 1:
            problem = _entry_problem(f"{index}", command) or _options_problem(
                f"{index}.options", command.get("options") or []
            )
            if problem is not None:
                return problem
        if (kind, name) in seen:
            text = "Application command names must be unique"
            code = "APPLICATION_COMMANDS_DUPLICATE_NAME"
            return errors.invalid_form(str(index), code, text)
        seen.add((kind, name))
    return None


def _entry_problem(where: str, entry: dict[str, Any]) -> ApiError | None:
    """Of a command or an option of one."""
    name = str(entry.get("name", ""))
    if not (_COMMAND_NAME.fullmatch(name) and name == name.lower()):
        text = "Command name is invalid"
        return errors.invalid_form(f"{where}.name", "APPLICATION_COMMAND_INVALID_NAME", text)
    if not 1 <= len(str(entry.get("description", ""))) <= 100:
        text = "Must be between 1 and 100 in length."
        return errors.invalid_form(f"{where}.description", "BASE_TYPE_BAD_LENGTH", text)
    return None


def _options_problem(where: str, options: list[dict[str, Any]]) -> ApiError | None:
    if len(options) > 25:
        return errors.too_long(where, 25)
    optional = False
    names = [option.get("name") for option in options]
    for n, option in enumerate(options):
        problem = _entry_problem(f"{where}.{n}", option) or _values_problem(f"{where}.{n}", option)
        if problem is not None:
            return problem
        if option.get("required") and optional:
            text = "Required options must be placed before non-required options"
            code = "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID"
            return errors.invalid_form(where, code, text)
        optional = optional or not option.get("required")
    if len(set(names)) < len(names):
        text = "Option names must be unique"
        return errors.invalid_form(where, "APPLICATION_COMMAND_OPTIONS_NAME_ALREADY_EXISTS", text)
    return None


def _values_problem(where: str, option: dict[str, Any]) -> ApiError | None:
    if option.get("type") not in range(1, 12):
        return errors.invalid_form(
            f"{where}.type", "BASE_TYPE_CHOICES", "Value must be one of 1-11."
        )
    choices = option.get("choices") or []
    if len(choices) > 25:
        return errors.too_long(f"{where}.choices", 25)
    names = [choice.get("name") for choice in choices]
    if len(set(names)) < len(names):
        text = "Option choice names must be unique"
        code = "APPLICATION_COMMAND_OPTIONS_CHOICE_NAME_ALREADY_EXISTS"
        return errors.invalid_form(f"{where}.choices", code, text)
    for n, choice in enumerate(choices):
        for key in ("name", "value"):
            if not 1 <= len(str(choice.get(key, ""))) <= 100:
                text = "Must be between 1 and 100 in length."
                return errors.invalid_form(
                    f"{where}.choices.{n}.{key}", "BASE_TYPE_BAD_LENGTH", text
                )
    length = option.get("max_length")
    if length is not None and not 1 <= length <= 6000:
        text = "Value should be between 1 and 6000."
        return errors.invalid_form(f"{where}.max_length", "NUMBER_TYPE_MAX", text)
    return None


def check_components(rows: Any) -> None:
    """Rows of buttons; nothing else is modelled."""
    if not isinstance(rows, list) or len(rows) > 5:
        raise errors.too_long("components", 5)
    ids: set[str] = set()
    for n, row in enumerate(rows):
        if row.get("type") != _ROW:
            text = 'Value of field "type" must be one of (1,).'
            raise errors.invalid_form(f"components.{n}.type", "UNION_TYPE_CHOICES", text)
        buttons = row.get("components")
        if not isinstance(buttons, list) or not 1 <= len(buttons) <= 5:
            text = "Must be between 1 and 5 in length."
            raise errors.invalid_form(f"components.{n}.components", "BASE_TYPE_BAD_LENGTH", text)
        for m, button in enumerate(buttons):
            _check_button(f"components.{n}.components.{m}", button, ids)


def _check_button(where: str, button: dict[str, Any], ids: set[str]) -> None:
    style = button.get("style")
    if button.get("type") != _BUTTON or style not in range(1, _PREMIUM):
        text = "Value must be one of {1, 2, 3, 4, 5, 6}."
        raise errors.invalid_form(f"{where}.style", "BASE_TYPE_CHOICES", text)
    label = button.get("label") or ""
    if not label and not button.get("emoji"):
        text = "A button must have a label or emoji."
        raise errors.invalid_form(
            f"{where}.label", "BUTTON_COMPONENT_LABEL_OR_EMOJI_REQUIRED", text
        )
    if len(label) > 80:
        raise errors.too_long(f"{where}.label", 80)
    custom_id = button.get("custom_id") or ""
    if style == _LINK:
        return
    if not 1 <= len(custom_id) <= 100:
        text = "Must be between 1 and 100 in length."
        raise errors.invalid_form(f"{where}.custom_id", "BASE_TYPE_BAD_LENGTH", text)
    if custom_id in ids:
        text = "Component custom id cannot be duplicated"
        raise errors.invalid_form(f"{where}.custom_id", "COMPONENT_CUSTOM_ID_DUPLICATED", text)
    ids.add(custom_id)


def check_files(
    body: dict[str, Any], files: list[tuple[str, bytes, str]], *, premium_tier: int = 0
) -> None:
    """Each within the limit, and each that the body names is there."""
    if any(len(data) > FILE_LIMITS.get(premium_tier, 10 * _MB) for _, data, _ in files):
        raise ApiError(413, 40005, "Request entity too large")
    if len(files) > MAX_FILES:
        raise errors.too_long("files", MAX_FILES)
    for one in body.get("attachments") or []:
        if len(str(one.get("description") or "")) > 1024:
            raise errors.too_long("attachments.description", 1024)
        id_ = str(one.get("id", ""))
        if not id_.isdecimal():
            raise errors.not_a_snowflake("attachments.id", id_)
        # Small numbers are places among the files of this request.
        if int(id_) < 1000 and int(id_) >= len(files):
            text = f"Attachment with id {id_} has no file"
            raise errors.invalid_form("attachments", "ATTACHMENT_NOT_FOUND", text)
