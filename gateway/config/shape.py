"""Owns finding one's way in the shape of config.yaml: which section, which key is meant. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gateway.config.models import Config


def section_at(loc: tuple[Any, ...]) -> type[BaseModel]:
    """The section in which a path ends, or the last one on its way."""
    section: type[BaseModel] = Config
    parts = iter(loc)
    for part in parts:
        field = section.model_fields.get(str(part))
        named = named_sections(field.annotation) if field else None
        inner = named or (model_in(field.annotation) if field else None)
        if inner is None:
            break
        section = inner
        if named is not None:
            next(parts, None)  # its name: any
    return section


def field_at(loc: tuple[Any, ...]) -> FieldInfo | None:
    """The key at a path; None: nobody knows it."""
    field: FieldInfo | None = None
    section: type[BaseModel] | None = Config
    parts = iter(loc)
    for part in parts:
        field = section.model_fields.get(str(part)) if section is not None else None
        if field is None:
            return None
        named = named_sections(field.annotation)
        section = named or model_in(field.annotation)
        if named is not None and next(parts, None) is None:
            return field
    return field


def named_sections(annotation: Any) -> type[BaseModel] | None:
    """Of a mapping of sections by names that are free to choose: the section."""
    return model_in(get_args(annotation)[1]) if get_origin(annotation) is dict else None


def model_in(annotation: Any) -> type[BaseModel] | None:
    """The section that stands there."""
    if get_origin(annotation) is dict:
        return None
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def takes_text(annotation: Any) -> bool:
    """Does this take any text, as far as its type goes?"""
    if get_origin(annotation) is Annotated:
        return takes_text(get_args(annotation)[0])
    if get_origin(annotation) in (list, dict):
        return False
    return annotation is str or any(takes_text(inner) for inner in get_args(annotation))


def all_paths(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every dotted path that a section knows; the keys of a list's items have none."""
    for key, field in section.model_fields.items():
        yield prefix + key
        inner = model_in(field.annotation)
        if inner is not None and get_origin(field.annotation) is not list:
            yield from all_paths(inner, f"{prefix}{key}.")
