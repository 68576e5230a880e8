"""Owns which areas there are, in which order they are told, and how long each may take."""

from __future__ import annotations

from functools import partial

from gateway.doctor import (
    database,
    due,
    extensions,
    kept_secrets,
    machine,
    on_discord,
    on_model,
    on_telegram,
    place,
    running,
    settings,
    software,
    unit,
    workspaces,
)
from gateway.doctor.finding import Area
from gateway.doctor.ground import Ground

HERE_SECONDS = 8.0
"""For what lies on this machine: a disk that hangs."""
ELSEWHERE_SECONDS = 15.0
"""Several questions, each with a deadline of its own."""


def all_areas(ground: Ground) -> list[Area]:
    """Everything that is examined."""
    here = {
        "home": place.look,
        "configuration": settings.look,
        "secrets": kept_secrets.look,
        "database": database.look,
        "software": software.look,
        "clock": machine.look,
        "plugins": extensions.look,
        "jobs": due.look,
        "workspaces": workspaces.look,
        "service": unit.look,
        "gateway": running.look,
    }
    elsewhere = {"telegram": on_telegram.look, "discord": on_discord.look}
    areas = [Area(name, partial(look, ground), HERE_SECONDS) for name, look in here.items()]
    areas.append(Area("model", partial(on_model.look, ground), ELSEWHERE_SECONDS))
    if not ground.offline:
        areas += [
            Area(name, partial(look, ground), ELSEWHERE_SECONDS) for name, look in elsewhere.items()
        ]
    return areas
