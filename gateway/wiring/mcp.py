"""Owns how MCP servers come from the configuration: secrets filled in, problems in words."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agent.attachments import Attachments
from agent.media.pictures import PictureMaker
from agent.tools.mcp.connecting import MISSING, is_installed
from agent.tools.mcp.nouns import HttpWay, ServerSettings, StdioWay
from agent.tools.mcp.results import Teller
from agent.tools.registry import ToolRegistry
from gateway.config.environment import referenced
from gateway.config.models import Config
from gateway.config.sections.mcp import McpServer, filled
from gateway.loopback import is_loopback
from gateway.mcp.servers import McpServers
from gateway.windows.remembered import RememberedFacts
from gateway.wiring.ground import Ground
from gateway.wiring.surroundings import Surroundings

_HANDED_ON = (
    *("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"),
    *("LANG", "LC_ALL", "TMPDIR", "TZ"),
)
"""Of our environment, to programs; the rest holds our secrets."""


@dataclass(frozen=True, slots=True)
class ServerPlan:
    """What the configuration asks for."""

    servers: tuple[ServerSettings, ...] = ()
    problems: tuple[str, ...] = ()
    """What can not work, or should be otherwise, a line each."""
    missing_programs: tuple[str, ...] = ()
    """The same; a server that was tried says so itself."""

    @property
    def has_programs(self) -> bool:
        """Is anything started here?"""
        return any(isinstance(server.way, StdioWay) for server in self.servers)


def plan_servers(config: Config, around: Surroundings) -> ServerPlan:
    """Pure but for the secrets and the programs that are looked for; starts nothing.

    Raises:
        ConfigError: a file that should hold a secret can not be read.
    """
    wanted = {n: s for n, s in config.agent.tools.mcp.items() if s.enabled}
    known = referenced(config, around.env, around.home.secrets)
    servers: list[ServerSettings] = []
    problems: list[str] = []
    if wanted and not is_installed():
        problems.append(f"agent.tools.mcp is set, but {MISSING}")
    for name, server in wanted.items():
        missing = [n for n in server.references() if known[n] is None]
        if missing:
            problems.append(
                f"agent.tools.mcp.{name} is left out: there is no {' and no '.join(missing)} "
                "in this environment"
            )
            continue
        values = {n: value for n, value in known.items() if value is not None}
        settings = _settings(name, server, values, around)
        servers.append(settings)
        problems += _in_the_clear(settings)
    programs = [line for server in servers for line in _no_program(server)]
    return ServerPlan(tuple(servers), tuple(problems), tuple(programs))


def build_servers(
    plan: ServerPlan,
    ground: Ground,
    tools: ToolRegistry,
    attachments: Attachments,
    pictures: PictureMaker,
) -> McpServers | None:
    """None: there is nothing to say about any."""
    if not (plan.servers or plan.problems):
        return None
    home = ground.around.home.path
    for server in plan.servers:
        if isinstance(server.way, StdioWay) and server.way.folder == _own_folder(home, server.name):
            server.way.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return McpServers(
        plan.servers,
        tools,
        Teller(attachments, pictures),
        RememberedFacts(home / "mcp.json"),
        ground.clock,
        remarks=plan.problems,
    )


def _settings(
    name: str, server: McpServer, values: dict[str, str], around: Surroundings
) -> ServerSettings:
    return ServerSettings(
        name=name,
        way=_way(name, server, values, around),
        timeout_seconds=server.timeout_seconds,
        approve=frozenset(server.approve) if isinstance(server.approve, list) else server.approve,
        only=None if server.tools is None else frozenset(server.tools),
        secrets=(*server.secrets(), *(values[name] for name in server.references())),
    )


def _way(
    name: str, server: McpServer, values: dict[str, str], around: Surroundings
) -> StdioWay | HttpWay:
    if server.url is not None:
        headers = {key: filled(value, values) for key, value in server.headers.items()}
        return HttpWay(filled(server.url, values), headers)
    home = around.home.path
    own = _own_folder(home, name)
    folder = own if server.cwd is None else home / Path(server.cwd).expanduser()
    return StdioWay(
        tuple(filled(word, values) for word in server.words),
        folder,
        {**_environment(around.env), **{k: filled(v, values) for k, v in server.env.items()}},
    )


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    return {name: env[name] for name in _HANDED_ON if name in env}


def _own_folder(home: Path, name: str) -> Path:
    return home / "mcp" / name


def _no_program(server: ServerSettings) -> list[str]:
    way = server.way
    if not isinstance(way, StdioWay) or shutil.which(way.command[0], path=way.env.get("PATH")):
        return []
    return [f"agent.tools.mcp.{server.name}: there is no program {way.command[0]!r}"]


def _in_the_clear(server: ServerSettings) -> list[str]:
    way = server.way
    if not isinstance(way, HttpWay) or not way.headers:
        return []
    parts = urlsplit(way.url)
    if parts.scheme != "http" or is_loopback(parts.hostname or ""):
        return []
    return [
        f"agent.tools.mcp.{server.name}: its headers go over the network in the clear (http, not "
        "https)"
    ]
