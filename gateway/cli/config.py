"""Owns `posthouse config`: check, show, schema."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gateway.cli import exits
from gateway.cli.output import out, plain
from gateway.config.doubts import doubts_about
from gateway.config.environment import (
    Secrets,
    environment,
    find_config_file,
    find_home,
    missing_tokens,
    odd_secrets,
    read_secrets,
)
from gateway.config.loading import load_config
from gateway.config.models import Config, unavailable

if TYPE_CHECKING:
    from gateway.wiring.surroundings import Surroundings


def run(arguments: argparse.Namespace) -> int:
    """One of the three actions."""
    if arguments.action == "schema":
        out(json.dumps(Config.model_json_schema(), indent=2))
        return exits.OK
    env = environment()
    home = find_home(env)
    path = find_config_file(arguments.config, home)
    config, passed = load_config(path)
    secrets = read_secrets(env, home.secrets)
    name = str(path) if path else "no config.yaml: the defaults hold"
    if arguments.action == "check":
        # Inside, so that `schema` stays instant.
        from gateway.wiring.surroundings import Surroundings  # noqa: PLC0415

        around = Surroundings(home, secrets, env, plugin_sections=passed)
        _check(config, around, path, name, arguments.json)
        return exits.OK
    shown = _redacted({**config.model_dump(mode="json"), **passed})
    if arguments.json:
        out(json.dumps({**shown, "secrets": _presence(secrets)}, indent=2))
    else:
        out(f"# home: {home.path} ({home.reason})\n# file: {name}")
        out("".join(f"# {k}: {v}\n" for k, v in _presence(secrets).items()).rstrip())
        out(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True).rstrip())
    return exits.OK


def _check(
    config: Config, around: Surroundings, path: Path | None, name: str, as_json: bool
) -> None:
    secrets = around.secrets
    # Inside, so that `schema` stays instant.
    from gateway.intake.who_may_talk import in_words, warnings_of  # noqa: PLC0415
    from gateway.wiring.models import is_offline  # noqa: PLC0415
    from gateway.wiring.platforms import build_policies, enabled_platforms  # noqa: PLC0415

    platforms = enabled_platforms(config, secrets)
    policies = build_policies(config, {"telegram", "discord"})
    closed = {name for name, policy in policies.items() if policy.lets_nobody_in}
    who = {name: in_words(policies[name]) for name in platforms}
    # Only warnings: the service may have secrets that are not in this shell.
    missing = [f"{line} in this environment" for line in missing_tokens(config, secrets)]
    warnings = [
        *unavailable(config),
        *missing,
        *(odd_secrets(secrets) or doubts_about(secrets, around.env)),
        *_about_plugins(config, around),
        *_about_mcp(config, around),
        *(line for platform in platforms for line in warnings_of(platform, policies[platform])),
        *(
            f"{platform} lets people in, but there is no {platform.upper()}_BOT_TOKEN in this "
            "environment"
            for platform in policies
            if platform not in closed
            and platform not in platforms
            and getattr(config, platform).enabled == "auto"
        ),
    ]
    model = "offline" if is_offline(config, secrets) else config.model.name
    if as_json:
        found = {"file": str(path) if path else None, "ok": True, "warnings": warnings}
        out(json.dumps({**found, "platforms": platforms, "model": model, "who_may_talk": who}))
        return
    # Without a platform `run` serves the terminal in which it is started.
    starts = f"would start: {', '.join(platforms) or 'console'}; model {plain(model)}"
    talking = [f"who may talk to {platform}: {words}" for platform, words in who.items()]
    out("\n".join([f"ok: {name}", starts, *talking, *(f"warning: {line}" for line in warnings)]))


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
    values = {
        "TELEGRAM_BOT_TOKEN": secrets.telegram_bot_token,
        "DISCORD_BOT_TOKEN": secrets.discord_bot_token,
        "ANTHROPIC_API_KEY": secrets.anthropic_api_key,
    }
    return {name: "set" if value else "not set" for name, value in values.items()}


def _redacted(value: Any, name: str = "") -> Any:
    """Hide what looks like a secret by its name: plugins' sections are not ours to know."""
    if isinstance(value, dict):
        # What is handed to a server of tools: a reference is no secret.
        hidden = "secret" if name in ("env", "headers") else ""
        return {k: _redacted(v, hidden or str(k)) for k, v in value.items()}
    if isinstance(value, list):
        return [_redacted(item, name) for item in value]
    secret = any(word in name.lower() for word in ("secret", "token", "password", "api_key", "key"))
    shown = isinstance(value, str) and "${" in value
    return "[hidden]" if secret and isinstance(value, str) and value and not shown else value
