"""``agent.tools.mcp``: what is taken, what is refused and where, and what secrets come to."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.tools.mcp.connecting import connect
from agent.tools.mcp.nouns import HttpWay, ServerHopeless, ServerSettings, StdioWay
from gateway.config.environment import Home, Secrets, values_to_hide
from gateway.config.loading import parse_config
from gateway.config.models import Config
from gateway.config.showing import redacted
from gateway.wiring.mcp import ServerPlan, plan_servers
from gateway.wiring.surroundings import Surroundings

pytest.importorskip("mcp", reason="the extra mcp is not installed")

HEAD = "agent:\n  tools:\n    mcp:\n"


def config(text: str) -> Config:
    """``text``: the servers, one a line."""
    lines = "".join(f"      {line}\n" for line in text.splitlines())
    return parse_config(HEAD + lines, "c.yaml")[0]


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config(text)
    return caught.value.problems


def plan(text: str, home: Path, **env: str) -> ServerPlan:
    env = {"PATH": "/bin:/usr/bin", "ANTHROPIC_API_KEY": "ours", **env}
    return plan_servers(config(text), Surroundings(Home(home, "test"), Secrets(), env))


def one(text: str, home: Path, **env: str) -> ServerSettings:
    found = plan(text, home, **env)
    assert found.problems == ()
    return found.servers[0]


def test_in_the_form_that_other_hosts_know(tmp_path: Path) -> None:
    text = """docs:
  command: sh
  args: ["-c", "exit 0"]
  env: {API_KEY: "${DOCS_KEY}", PORT: 8080}
"""
    server = one(text, tmp_path, DOCS_KEY="secret-of-docs")
    assert isinstance(server.way, StdioWay)
    assert server.way.command == ("sh", "-c", "exit 0")
    assert server.way.env == {
        "PATH": "/bin:/usr/bin",
        "API_KEY": "secret-of-docs",
        "PORT": "8080",
    }
    assert server.way.folder == tmp_path / "mcp" / "docs"
    assert (server.timeout_seconds, server.approve, server.only) == (60, "writes", None)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("command: sh", ("sh",)),
        ("command: sh -c 'exit 0'", ("sh", "-c", "exit 0")),
        ("command: [sh, -c, exit 0]", ("sh", "-c", "exit 0")),
        ("command: [sh, -c]\n  args: [exit 0]", ("sh", "-c", "exit 0")),
        ('command: "/my programs/x"\n  args: [y]', ("/my programs/x", "y")),
        ("command: sh\n  args: ['${WHERE}/x']", ("sh", "/srv/x")),
    ],
)
def test_commands(command: str, words: tuple[str, ...], tmp_path: Path) -> None:
    server = one(f"docs:\n  {command}", tmp_path, WHERE="/srv")
    assert isinstance(server.way, StdioWay)
    assert server.way.command == words


def test_a_server_elsewhere(tmp_path: Path) -> None:
    text = """tracker:
  type: http
  url: https://mcp.example.org/mcp
  headers: {Authorization: "Bearer ${TOKEN}"}
  approve: [close]
  tools: [close, find]
  timeout_seconds: 5
"""
    server = one(text, tmp_path, TOKEN="t0ken")
    assert isinstance(server.way, HttpWay)
    assert server.way.headers == {"Authorization": "Bearer t0ken"}
    assert server.approve == frozenset({"close"})
    assert server.only == frozenset({"close", "find"})
    assert "t0ken" not in repr(server)


def test_secrets_come_from_files_and_are_kept_out_of_logs(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    text = (
        "docs: {url: 'https://x.org/', headers: {A: '${TOKEN}', B: 'plain-header'}}\n"
        "other: {command: sh, env: {MY_SECRET: 'plain-secret', MODE: production}}\n"
    )
    found = config(text)
    env = {"TOKEN_FILE": str(file)}
    assert set(values_to_hide(found, env)) == {"from-a-file", "plain-header", "plain-secret"}
    shown = json.dumps(redacted(found.model_dump(mode="json")))
    assert "${TOKEN}" in shown
    assert "plain-header" not in shown
    assert "plain-secret" not in shown
    gone = {"TOKEN_FILE": str(tmp_path / "gone")}
    with pytest.raises(ConfigError, match="TOKEN_FILE"):
        values_to_hide(found, gone)


def test_what_is_missing_leaves_its_server_out_and_it_is_said(tmp_path: Path) -> None:
    found = plan(
        "a: {command: sh, env: {X: '${NOT_THERE} ${NOR_THIS}'}}\n"
        "b: {command: no-such-program}\n"
        "c: {url: 'http://example.org/mcp', headers: {A: b}}\n"
        "d: {url: 'http://127.0.0.1:1/mcp', headers: {A: b}}\n"
        "e: {command: sh, enabled: false, env: {X: '${NOT_EVEN_ASKED}'}}\n",
        tmp_path,
    )
    assert found.problems == (
        "agent.tools.mcp.a is left out: there is no NOT_THERE and no NOR_THIS in this environment",
        "agent.tools.mcp.c: its headers go over the network in the clear (http, not https)",
    )
    assert found.missing_programs == ("agent.tools.mcp.b: there is no program 'no-such-program'",)
    assert [server.name for server in found.servers] == ["b", "c", "d"]
    assert found.has_programs


def test_without_the_package_it_is_said_and_nothing_else_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = plan("docs: {command: sh}", tmp_path)
    assert found.problems == (
        "agent.tools.mcp is set, but the package mcp is not installed: pip install "
        "'posthouse[mcp]'",
    )
    with pytest.raises(ServerHopeless, match="is not installed"):
        asyncio.run(connect(found.servers[0]).__aenter__())


def test_the_package_is_loaded_by_the_first_server_only() -> None:
    script = (
        "import gateway.wiring.assembling, gateway.wiring.mcp, sys\n"
        "print({'mcp', 'mcp_types', 'jsonschema', 'httpx2'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("docs: {}", "c.yaml:4:13: agent.tools.mcp.docs: needs either command"),
        ("docs: {command: x, url: 'https://x.org'}", "needs either command"),
        (
            "docs:\n  comand: x",
            "c.yaml:5:9: agent.tools.mcp.docs.comand: unknown key; did you mean",
        ),
        ("docs: {command: x, apiKey: y}", "docs.apiKey: unknown key; a server gets its secrets by"),
        ("docs: {url: 'ftp://x.org'}", "must be a whole address"),
        ("docs: {url: 'https://me:pass@x.org'}", "must not hold a password"),
        ("docs: {url: 'https://x.org', args: [a]}", "args has no meaning beside url"),
        ("docs: {command: x, headers: {A: b}}", "headers has no meaning beside command"),
        ("docs: {type: http, command: x}", "type is http, so it needs url"),
        ("docs: {type: stdio, url: 'https://x.org'}", "type is stdio, so it needs command"),
        ('docs: {command: "a \'b"}', "command: No closing quotation"),
        ("docs: {command: ''}", "command is empty"),
        ("docs: {command: [' ']}", "command is empty"),
        ("docs: {command: x, env: {'A-B': c}}", "'A-B' is no name of a variable"),
        ("docs: {url: 'https://x.org', headers: {'A B': c}}", "'A B' is no name of a header"),
        ("docs: {url: 'https://x.org', headers: {A: \"b\\nc\"}}", "must be one line"),
        ("docs: {command: x, env: {A: true}}", "agent.tools.mcp.docs.env.A: input should be a"),
        ("docs: {command: x, timeout_seconds: 0}", "timeout_seconds"),
        ("docs: {command: x, approve: sometimes}", "agent.tools.mcp.docs.approve"),
        ("'my docs': {command: x}", "'my docs' is no name for a server"),
        ("my__docs: {command: x}", "'my__docs' is no name for a server"),
        (f"{'x' * 25}: {{command: x}}", "is no name for a server"),
        ("docs: 5", "c.yaml:4:13: agent.tools.mcp.docs: "),
    ],
)
def test_what_is_refused_and_where(text: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(text)), problems(text)
