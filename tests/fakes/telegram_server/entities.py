"""Entities and the UTF-16 arithmetic they are placed with; checks of the `entities` parameter."""

from __future__ import annotations

from typing import Any

from tests.fakes.telegram_server.wire import bad_request, words

Entity = dict[str, Any]

MAX_ENTITIES = 100
_AUTOMATIC = words("mention hashtag cashtag bot_command url email phone_number bank_card_number")
_FORMATTING = words(
    "bold italic underline strikethrough spoiler blockquote expandable_blockquote code pre "
    "text_link text_mention custom_emoji date_time"
)


def utf16_len(text: str) -> int:
    """Length in UTF-16 code units, the unit of every limit and offset of the platform."""
    return len(text) + sum(1 for char in text if ord(char) > 0xFFFF)


def utf16_slice(text: str, offset: int, length: int) -> str:
    """The part of a text that an entity covers."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return raw[offset * 2 : (offset + length) * 2].decode("utf-16-le", "surrogatepass")


def byte_offset(text: str, index: int) -> int:
    """Where a character stands in the UTF-8 form; error texts speak of bytes."""
    return len(text[:index].encode())


def check_entities(text: str, entities: object) -> list[Entity]:
    """Validate given entities against the text; those Telegram finds itself are dropped."""
    if not isinstance(entities, list):
        raise bad_request("can't parse entities JSON array: expected an Array")
    kept = [entity for entity in map(_known, entities) if entity is not None]
    kept.sort(key=lambda entity: (entity["offset"], -entity["length"]))
    borders = _borders(text)
    return [entity for entity in kept if _placed(text, borders, entity)]


def _known(entity: object) -> Entity | None:
    if not isinstance(entity, dict):
        raise bad_request("can't parse MessageEntity: expected an Object")
    kind = entity.get("type")
    if kind in _AUTOMATIC:
        return None
    if kind not in _FORMATTING:
        raise bad_request("can't parse MessageEntity: Unsupported type specified")
    for name in ("offset", "length"):
        if not isinstance(entity.get(name), int) or isinstance(entity[name], bool):
            raise bad_request(f'can\'t parse MessageEntity: Field "{name}" must be of type Number')
    if kind == "text_link" and not entity.get("url"):
        raise bad_request("can't parse MessageEntity: Can't find field \"url\"")
    return dict(entity)


def _borders(text: str) -> dict[int, int]:
    """UTF-16 offsets at which a character begins or the text ends, with their byte offsets."""
    borders, units, octets = {0: 0}, 0, 0
    for char in text:
        units += utf16_len(char)
        octets += len(char.encode())
        borders[units] = octets
    return borders


def _placed(text: str, borders: dict[int, int], entity: Entity) -> bool:
    offset, length = entity["offset"], entity["length"]
    if offset < 0:
        raise bad_request(f"receive an entity with incorrect offset {offset}")
    if length < 0:
        raise bad_request(f"receive an entity with incorrect length {length}")
    if length == 0:
        return False
    total, stop = max(borders), offset + length
    if offset > total:
        raise bad_request(f"entity begins after the end of the text at UTF-16 offset {offset}")
    if offset not in borders:
        raise bad_request(
            f"entity begins in a middle of a UTF-16 symbol at byte offset {borders[offset + 1]}"
        )
    begins = f"entity beginning at UTF-16 offset {offset}"
    if stop > total:
        raise bad_request(f"{begins} ends after the end of the text at UTF-16 offset {stop}")
    if stop not in borders:
        where = borders[stop + 1]
        raise bad_request(f"{begins} ends in a middle of a UTF-16 symbol at byte offset {where}")
    return bool(utf16_slice(text, offset, length).strip())


def tidy(text: str, entities: list[Entity]) -> tuple[str, list[Entity]]:
    """What the platform stores: blanks trimmed at both ends, at most 100 entities."""
    text_end = utf16_len(text.rstrip(" \n\t\r"))
    first = min((entity["offset"] for entity in entities), default=text_end)
    # Leading blanks go only as far as the first entity.
    head = utf16_slice(text, 0, min(first, text_end))
    cut = utf16_len(head) - utf16_len(head.lstrip(" \n\t\r"))
    kept = []
    for entity in entities:
        stop = min(entity["offset"] + entity["length"], text_end)
        if stop > entity["offset"]:
            kept.append({**entity, "offset": entity["offset"] - cut})
            kept[-1]["length"] = stop - entity["offset"]
    return utf16_slice(text, cut, text_end - cut), kept[:MAX_ENTITIES]
