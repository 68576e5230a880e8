"""The environment over config.yaml, and the other names of keys."""

from __future__ import annotations

import pytest

from agent.errors import ConfigError
from gateway.config.loading import Loaded, parse
from gateway.config.models import Config
from gateway.config.overlay import nearly_meant, path_of, variable
from gateway.config.renamed import RENAMED
from gateway.config.shape import all_paths, field_at


def load(text: str, **env: str) -> Loaded:
    return parse(text, "c.yaml", {f"POSTHOUSE__{name}": value for name, value in env.items()})


def problems(text: str, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, **env)
    return caught.value.problems


@pytest.mark.parametrize(
    ("name", "value", "path", "meant"),
    [
        ("MODEL__NAME", "small", "model.name", "small"),
        ("MODEL__NAME", "3.5", "model.name", "3.5"),
        ("MODEL__MAX_TOKENS", "77", "model.max_tokens", 77),
        ("MODEL__BASE_URL", "null", "model.base_url", None),
        ("MODEL__BASE_URL", "http://127.0.0.1:1/a", "model.base_url", "http://127.0.0.1:1/a"),
        ("MODEL__FALLBACK", "[a, b]", "model.fallback", ["a", "b"]),
        ("TELEGRAM__ALLOW_FROM", "[111, '222']", "telegram.allow_from", ["111", "222"]),
        ("TELEGRAM__ALLOW_FROM", "", "telegram.allow_from", []),
        ("telegram__pairing", "true", "telegram.pairing", True),
        ("AGENT__SYSTEM_PROMPT", "You are: kind [very]", "agent.system_prompt", None),
        ("GATEWAY__HTTP__PORT", "null", "gateway.http.port", None),
        ("COMPRESSION__NATIVE", "off", "compression.native", "off"),
        ("COMPRESSION__MODEL_THRESHOLDS", "{haiku: 0.4}", "compression.model_thresholds", None),
        ("LOGGING__LEVEL", "debug", "logging.level", "DEBUG"),
    ],
)
def test_a_variable_goes_before_the_file(name: str, value: str, path: str, meant: object) -> None:
    text = (
        "model: {name: other, max_tokens: 5, base_url: 'http://a'}\ntelegram: {allow_from: [3]}\n"
    )
    found: object = load(text, **{name: value}).config
    for part in path.split("."):
        found = getattr(found, part)
    if path == "agent.system_prompt":
        assert found == value
    elif path == "compression.model_thresholds":
        assert found == {"haiku": 0.4}
    else:
        assert found == meant


def test_names_of_ones_own_keep_their_case_unless_all_is_shouted() -> None:
    loaded = load("", AGENT__TOOLS__MCP__docs__URL="https://a.example/mcp")
    assert loaded.config.agent.tools.mcp["docs"].url == "https://a.example/mcp"
    assert path_of("POSTHOUSE__AGENT__TOOLS__MCP__DOCS__URL") == (
        *("agent", "tools", "mcp"),
        *("docs", "url"),
    )
    assert load("", AUXILIARY__EXTRACTION__MODEL="m").config.auxiliary["extraction"].model == "m"


def test_sections_of_plugins_may_be_laid_over() -> None:
    loaded = load("context: {engine: lcm}\nlcm: {a: 1, b: 2}", LCM__A="[x]")
    assert loaded.sections == {"lcm": {"a": ["x"], "b": 2}}


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"MODEL__NAM": "x"}, "POSTHOUSE__MODEL__NAM: model.nam: unknown key; did you mean"),
        ({"MODEL__NAM": "x"}, "did you mean POSTHOUSE__MODEL__NAME?"),
        ({"MODLE__NAME": "x"}, "modle: unknown key; did you mean POSTHOUSE__MODEL__NAME?"),
        ({"GATWAY__HTTP__PROT": "1"}, "did you mean POSTHOUSE__GATEWAY__HTTP__PORT?"),
        ({"NOPE__X": "1"}, "nope: unknown key; it is built like POSTHOUSE__MODEL__NAME"),
        ({"MODEL__API_KEY": "x"}, "secrets do not belong"),
        ({"MODEL__MAX_TOKENS": "many"}, "POSTHOUSE__MODEL__MAX_TOKENS: model.max_tokens: input"),
        ({"MODEL": "claude"}, "POSTHOUSE__MODEL: model: must be a section with keys"),
        ({"MODEL__": "x"}, "names no key; it is built like POSTHOUSE__MODEL__NAME"),
        ({"": "x"}, "names no key"),
        ({"TELEGRAM__ALLOW_FROM": "[1"}, "POSTHOUSE__TELEGRAM__ALLOW_FROM: not valid YAML"),
        ({"TELEGRAM__ALLOW_FROM": "[0123]"}, "0123 is another number in YAML than it looks like"),
        ({"TELEGRAM__ALLOW_FROM": "bob"}, "must be a list of numeric ids"),
        ({"TELEGRAM__BOT_TOKEN": "hush"}, "set TELEGRAM_BOT_TOKEN in the environment"),
        ({"LOGGING__LEVEL__X": "1"}, "POSTHOUSE__LOGGING__LEVEL__X: logging.level is no section"),
    ],
)
def test_what_a_variable_can_not_mean_is_an_error(env: dict[str, str], said: str) -> None:
    lines = problems("logging:\n  level: INFO\n", **env)
    assert any(said in line for line in lines), lines
    assert "hush" not in "".join(lines)


def test_a_place_of_the_file_is_not_blamed_for_a_variable() -> None:
    lines = problems("telegram:\n  allow_from: [1]\n  pairing: 3\n", TELEGRAM__ALLOW_FROM="[x]")
    assert [line.split(": ")[0] for line in lines] == [
        "POSTHOUSE__TELEGRAM__ALLOW_FROM",
        "c.yaml:3:12",
    ]


def test_every_key_has_a_variable_of_its_own() -> None:
    paths = list(all_paths(Config))
    assert len({variable(path) for path in paths}) == len(paths)
    for path in paths:
        assert path_of(variable(path)) == tuple(path.split("."))
        assert "__" not in path
        assert field_at(tuple(path.split("."))) is not None


def test_one_underscore_too_few_is_told() -> None:
    env = {"POSTHOUSE_MODEL_NAME": "x", "POSTHOUSE_HOME": "/h", "POSTHOUSE__MODEL__NAME": "y"}
    (line,) = nearly_meant(env)
    assert line.endswith("call it POSTHOUSE__MODEL__NAME")
    assert not list(nearly_meant({"POSTHOUSE_HOME": "/h"}))


# --- other names


HERMES_AGENT = """\
model:
  default: claude-haiku-5-5
agent:
  max_turns: 12
session_reset:
  mode: daily
  at_hour: 5
display:
  busy_input_mode: steer
group_sessions_per_user: false
mcp_servers:
  docs: {command: npx}
"""


def test_a_file_of_hermes_agent_is_understood_and_its_names_are_told() -> None:
    loaded = load(HERMES_AGENT)
    config = loaded.config
    assert config.model.name == "claude-haiku-5-5"
    assert config.agent.max_iterations == 12
    assert (config.sessions.reset, config.sessions.daily_hour) == ("daily", 5)
    assert config.gateway.busy_mode == "steer"
    assert not config.telegram.group_sessions_per_user
    assert not config.discord.group_sessions_per_user
    assert list(config.agent.tools.mcp) == ["docs"]
    assert "c.yaml:2:3: model.default is Hermes Agent's name of model.name" in loaded.notes
    assert len(loaded.notes) == 7


def test_wrong_values_of_other_names_are_found_where_they_stand() -> None:
    (line,) = problems("agent:\n  max_turns: lots\n")
    assert line.startswith("c.yaml:2:14: agent.max_iterations (written as agent.max_turns): input")
    (line,) = problems("mcp_servers: {docs: {colour: 1}}")
    assert line == "c.yaml:1:22: agent.tools.mcp.docs.colour (written as mcp_servers): unknown key"


def test_both_names_set_differently_is_an_error() -> None:
    (line,) = problems("agent: {max_turns: 3, max_iterations: 4}")
    assert line.startswith("c.yaml:1:9: agent.max_turns: is another name of agent.max_iterations")
    assert load("agent: {max_turns: 4, max_iterations: 4}").config.agent.max_iterations == 4


def test_the_environment_goes_before_the_file_under_either_name() -> None:
    old_file = "agent: {max_turns: 3}"
    assert load(old_file, AGENT__MAX_ITERATIONS="5").config.agent.max_iterations == 5
    new_file = "agent: {max_iterations: 3}"
    assert load(new_file, AGENT__MAX_TURNS="5").config.agent.max_iterations == 5


def test_what_hermes_agent_has_beside_is_named_as_its_own() -> None:
    (line,) = problems("terminal: {backend: local}")
    assert line == (
        "c.yaml:1:1: terminal: unknown key; a section of Hermes Agent that says nothing here: "
        "take it out"
    )


def test_every_new_name_exists_and_no_old_one_does() -> None:
    paths = set(all_paths(Config))
    for entry in RENAMED:
        assert set(entry.new) <= paths
        assert entry.old not in paths
