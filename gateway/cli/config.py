"""Owns `posthouse config`: check, show, schema, reload."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

import yaml

from agent.errors import ConfigError
from gateway.cli import exits
from gateway.cli.output import out, plain
from gateway.cli.settings import Settings
from gateway.cli.status import WAITING, how_to_restart
from gateway.config.doubts import doubts_about
from gateway.config.environment import (
    Home,
    Secrets,
    environment,
    find_config_file,
    find_home,
    odd_secrets,
    read_secrets,
    unguarded,
)
from gateway.config.loading import Loaded, load
from gateway.config.models import Config, unavailable
from gateway.config.tokens import awaited_tokens, missing_tokens, where_to_put

if TYPE_CHECKING:
    from gateway.wiring.surroundings import Surroundings

RELOAD_SECONDS = 30.0
"""The file has to come to rest, and everybody has to take over what has changed."""


def run(arguments: argparse.Namespace) -> int:
    """One of the actions."""
    match arguments.action:
        case "schema":
            # Inside: only this one reads our own source.
            from gateway.config.schema import json_schema  # noqa: PLC0415

            out(json.dumps(json_schema(), indent=2, ensure_ascii=False))
        case "reload":
            return _reload(arguments)
        case action:
            env = environment()
            home = find_home(env)
            path = find_config_file(arguments.config, home)
            loaded = load(path, env)
            secrets = read_secrets(env, home.secrets)
            name = str(path) if path else "no config.yaml: the defaults hold"
            if action == "check":
                _check(loaded, home, secrets, name, arguments)
            else:
                _show(loaded, home, secrets, name, as_json=arguments.json)
    return exits.OK


def _show(loaded: Loaded, home: Home, secrets: Secrets, name: str, *, as_json: bool) -> None:
    from gateway.config.showing import origins, redacted  # noqa: PLC0415 - for this one only

    shown = redacted({**loaded.config.model_dump(mode="json"), **loaded.sections})
    where = origins(loaded)
    if as_json:
        found = {**shown, "secrets": _presence(secrets), "origins": where}
        out(json.dumps(found, indent=2, ensure_ascii=False))
        return
    out(f"# home: {home.path} ({home.reason})\n# file: {name}")
    out("".join(f"# {k}: {v}\n" for k, v in _presence(secrets).items()).rstrip())
    if where:
        out("# not as by default:")
        out("\n".join(f"#   {plain(path)}: {plain(place)}" for path, place in where.items()))
    out(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())


def _reload(arguments: argparse.Namespace) -> int:
    """Have the running daemon read everything again, and say what came of it."""
    env = environment()
    settings = Settings(arguments.config, find_home(env), env)
    answer = settings.ask({"op": "reload"}, seconds=RELOAD_SECONDS)
    if answer is None:
        settings.needed()  # and so it would not start
        out("not running: the configuration is read at the start")
        return exits.FAILED
    if "error" in answer:  # a gateway of another version, or of a test
        out(f"the running gateway can not: {answer['error']}")
        return exits.FAILED
    if arguments.json:
        out(json.dumps(answer, ensure_ascii=False))
    else:
        out("\n".join(_came_of_it(answer, settings.home)))
    return exits.BAD_CONFIG if answer.get("errors") else exits.OK


def _came_of_it(answer: dict[str, Any], home: Home) -> list[str]:
    if answer.get("errors"):
        return [
            *(f"error: {line}" for line in answer["errors"]),
            "nothing was changed: the last good configuration is in force",
        ]
    lines = [f"in force now: {path}" for path in answer.get("applied", [])]
    if waiting := answer.get("restart", []):
        lines += [f"{WAITING}: {path}" for path in waiting]
        lines.append(f"to restart it: {how_to_restart(home)}")
    lines += [f"warning: {line}" for line in answer.get("warnings", [])]
    return lines or ["nothing has changed"]


def _check(
    loaded: Loaded, home: Home, secrets: Secrets, name: str, arguments: argparse.Namespace
) -> None:
    # Inside, so that `schema` stays instant.
    from gateway.intake.who_may_talk import in_words, warnings_of  # noqa: PLC0415
    from gateway.wiring.job_doubts import placed  # noqa: PLC0415
    from gateway.wiring.models import check_model, is_offline  # noqa: PLC0415
    from gateway.wiring.platforms import build_policies, enabled_platforms  # noqa: PLC0415
    from gateway.wiring.surroundings import Surroundings  # noqa: PLC0415

    config = loaded.config
    around = Surroundings(home, secrets, environment(), plugin_sections=loaded.sections)
    path = find_config_file(arguments.config, home)
    platforms = enabled_platforms(config, secrets)
    policies = build_policies(config, {"telegram", "discord"})
    who = {name: in_words(policies[name]) for name in platforms}
    # Only warnings: the service may have secrets that are not in this shell.
    missing = missing_tokens(config, secrets)
    try:
        check_model(config, secrets)
    except ConfigError as exc:
        missing += exc.problems
    warnings = [
        *unavailable(config),
        *missing,
        *(odd_secrets(secrets) or doubts_about(secrets, around.env)),
        *unguarded(config, around.env, path, home),
        *_about_plugins(config, around),
        *_about_mcp(config, around),
        *placed(loaded, secrets, around.env),
        *(line for platform in platforms for line in warnings_of(platform, policies[platform])),
        *(
            f"{line}: {where_to_put(variable)}"
            for variable, line in awaited_tokens(config, secrets).items()
        ),
    ]
    model = "offline" if is_offline(config, secrets) else config.model.name
    if arguments.json:
        found = {"file": str(path) if path else None, "ok": True, "warnings": warnings}
        rest = {"notes": loaded.notes, "platforms": platforms, "model": model, "who_may_talk": who}
        out(json.dumps({**found, **rest}, ensure_ascii=False))
        return
    # Without a platform `run` serves the terminal in which it is started.
    starts = f"would start: {', '.join(platforms) or 'console'}; model {plain(model)}"
    lines = [f"ok: {name}", starts]
    lines += [f"who may talk to {platform}: {words}" for platform, words in who.items()]
    lines += [f"note: {line}" for line in loaded.notes]
    out("\n".join([*lines, *(f"warning: {line}" for line in warnings)]))


def _about_plugins(config: Config, around: Surroundings) -> list[str]:
    """What can be said of plugins without loading them."""
    if not config.wants_plugins:
        return []
    from gateway.wiring.plugins import said_before_loading  # noqa: PLC0415 - only if there are some

    return asyncio.run(said_before_loading(config, around))


def _about_mcp(config: Config, around: Surroundings) -> list[str]:
    """What can be said of servers of tools without starting one."""
    if not config.agent.tools.mcp:
        return []
    from gateway.wiring.mcp import plan_servers  # noqa: PLC0415 - only if there are some

    plan = plan_servers(config, around)
    return [*plan.problems, *plan.missing_programs]


def _presence(secrets: Secrets) -> dict[str, str]:
    return {name: "set" if value else "not set" for name, value in secrets.by_name().items()}
