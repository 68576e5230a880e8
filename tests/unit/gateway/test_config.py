"""The configuration: defaults, errors that name what is wrong, secrets that stay hidden."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.auxiliary_client import TaskSettings
from agent.errors import ConfigError
from gateway.config.doubts import doubts_about
from gateway.config.environment import Secrets, find_config_file, find_home, read_secrets
from gateway.config.loading import load_config, parse_config
from gateway.config.models import Config, unavailable
from gateway.config.shape import all_paths
from gateway.config.written import parse_yaml
from gateway.wiring.compaction import side_tasks

SHIPPED = Path(__file__).parents[3] / "config.yaml"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "c.yaml")
    return caught.value.problems


def test_shipped_file_holds_exactly_the_defaults() -> None:
    config, passed = load_config(SHIPPED)
    assert config == Config()
    assert passed == {}


def test_shipped_file_names_every_key() -> None:
    keys = parse_yaml(SHIPPED.read_text(encoding="utf-8"), "config.yaml").keys
    written = {".".join(map(str, path)) for path in keys}
    assert set(all_paths(Config)) <= written


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "compression:\n  treshold: 0.7",
            "c.yaml:2:3: compression.treshold: unknown key; did you mean compression.threshold?",
        ),
        (
            "alow_from: []",
            "c.yaml:1:1: alow_from: unknown key; did you mean telegram.allow_from or "
            "discord.allow_from?",
        ),
        ("model: {max_token: 5}", "model.max_token: unknown key; did you mean model.max_tokens?"),
        (
            "logging: DEBUG",
            "c.yaml:1:10: logging: must be a section with keys, e.g. logging: {level: DEBUG}",
        ),
        ("gateway: {http: 80}", "must be a section with keys, e.g. http: {host: 127.0.0.1}"),
        ("a:\n\tb: 1", ": indent with spaces, not tabs"),
        ("\ta: 1", ": indent with spaces, not tabs"),
        ("agent: {tools: {shel: true}}", "did you mean agent.tools.shell?"),
        ("compresion: {}", "c.yaml:1:1: compresion: unknown key; did you mean compression?"),
        ("compression: {threshold: '50%'}", "compression.threshold: input should be a valid num"),
        ("compression: {threshold: 1.5}", "compression.threshold: input should be less than or"),
        ("compression: {protect_last_n: -1}", "compression.protect_last_n: input should be gr"),
        ("compression: {target_ratio: 0.05}", "compression.target_ratio: input should be gr"),
        ("compression: {enabled: 'no'}", "compression.enabled: input should be a valid boolean"),
        ("model: {cache_ttl: 2h}", "model.cache_ttl: input should be '5m', '1h' or 'auto'"),
        ("context: {engine: ../../tmp/evil}", "context.engine: string should match pattern"),
        ("context: {engine: ''}", "context.engine: string should match pattern"),
        (
            "model: {base_url: 'http://[::1'}",
            "c.yaml:1:19: model.base_url: must be a whole",
        ),
        ("model: {base_url: localhost:8080}", "model.base_url: must be a whole address"),
        ("model: {base_url: 'http://a:99999'}", "model.base_url: must be a whole address"),
        ("telegram: {base_url: 'ftp://a'}", "telegram.base_url: must be a whole address"),
        ("discord: {gateway_url: 'https://a'}", "discord.gateway_url: must be a whole address"),
        ("plugins:\n  entries:\n    a: &a {b: *a}", "or an alias inside itself"),
        ("plugins: &a\n  enabled: [*a, *a, *a]", "or an alias inside itself"),
        ("jobs: " + "[" * 60 + "]" * 60, "c.yaml:1:57: not valid YAML: more than 50 levels deep"),
        ("jobs: " + "[" * 2000, "c.yaml: is nested more than 50 levels deep"),
        ("plugins: {entries: {? [a, b] : 1}}", "c.yaml:1:23: not valid YAML: a key has to be a"),
        ("telegram: {enabled: maybe}", "telegram.enabled: must be auto, true or false"),
        ("telegram: {allow_from: [bob]}", "telegram.allow_from: 'bob' is no numeric id"),
        ("telegram: {allow_from: [bob, 5, '@ada']}", "'bob' and '@ada' are no ids such as 123"),
        ("telegram: {allow_from: [true]}", "telegram.allow_from: true is no numeric id"),
        ("telegram: {allow_from: 12}", "telegram.allow_from: must be a list of numeric ids"),
        ("discord: {admins: ['*']}", 'discord.admins: "*" is only possible in allow_from'),
        ("timezone: Mars/Olympus", "timezone: 'Mars/Olympus' is no time zone name"),
        ("timezone: Berlin", "no time zone name; did you mean Europe/Berlin?"),
        ("timezone: Mars", "'Mars' is no time zone name, for example Europe/Berlin"),
        ("a: 1\nmodel: {}\na: 2", "c.yaml:3:1: a stands there twice"),
        ("model:\n  name: x\n  name: y", "c.yaml:3:3: model.name stands there twice"),
        ("jobs:\n  - every: 2h", "c.yaml:2:5: jobs.0: needs the key name"),
        ("jobs:\n  - nme: x", "c.yaml:2:5: jobs.0.nme: unknown key; did you mean jobs.0.name?"),
        ("- x", "c.yaml:1:1: must consist of `section:` keys, but is a list"),
        ("x: !!python/object:os.system 1", "c.yaml:1:4: not valid YAML"),
        ("a:\n\tb: 1", "c.yaml:2:1: not valid YAML"),
        ("model: {name: x", "not valid YAML"),
        ("# a\nb: \x00", "c.yaml:2:4: not valid YAML"),
        ("a: 2026-13-45", "c.yaml:1:4: not valid YAML: 2026-13-45: month must"),
    ],
)
def test_every_mistake_is_named(text: str, expected: str) -> None:
    assert any(expected in line for line in problems(text)), problems(text)


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("model: {api_key: sk-hush}", "ANTHROPIC_API_KEY"),
        ("ANTHROPIC_API_KEY: sk-hush", "ANTHROPIC_API_KEY"),
        ("password: sk-hush", "ANTHROPIC_API_KEY"),
        ("telegram: {bot_token: sk-hush}", "TELEGRAM_BOT_TOKEN"),
        ("telegram: {webhook: {API-Key: sk-hush}}", "TELEGRAM_BOT_TOKEN"),
        ("TELEGRAM_BOT_TOKEN: sk-hush", "TELEGRAM_BOT_TOKEN"),
        ("discord: {client_secret: [sk-hush]}", "DISCORD_BOT_TOKEN"),
    ],
)
def test_a_secret_is_sent_where_it_belongs(text: str, variable: str) -> None:
    (problem,) = problems(text)
    wanted = f"secrets do not belong in this file; put it alone into secrets/{variable} in the home"
    assert wanted in problem
    assert problem.endswith(f"or set {variable} in the environment, or {variable}_FILE")
    assert "hush" not in problem
    assert "did you mean" not in problem


def test_a_secret_of_the_wrong_kind_is_not_shown() -> None:
    (problem,) = problems("telegram: {webhook: {secret: 471147}}")
    assert "telegram.webhook.secret" in problem
    assert "471147" not in problem


def test_a_key_of_another_section_is_named_and_not_proposed() -> None:
    """It has another meaning there."""
    assert problems("gateway: {alow_from: []}") == [
        "c.yaml:1:11: gateway.alow_from: unknown key; there is telegram.allow_from or "
        "discord.allow_from"
    ]
    assert problems("gateway: {colour: 1}") == ["c.yaml:1:11: gateway.colour: unknown key"]


def test_the_level_of_the_log_in_any_case() -> None:
    assert parse_config("logging: {level: debug}", "c")[0].logging.level == "DEBUG"
    assert problems("logging: {level: loud}")


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    """Nine levels of ten: a thousand million values, were they written out."""
    bomb = ["jobs:", "- &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    bomb += [f"- &a{n + 1} [{', '.join([f'*a{n}'] * 10)}]" for n in range(8)]
    (problem,) = problems("\n".join(bomb))
    assert "more than 50,000 values, with all aliases written out" in problem


def test_all_mistakes_are_listed_at_once() -> None:
    text = "compression:\n  treshold: 1\n  enabled: 3\nmodle: {}\n"
    assert [line.split(":")[1] for line in problems(text)] == ["2", "3", "4"]


def test_no_file_and_an_empty_one_mean_the_defaults() -> None:
    assert load_config(None) == (Config(), {})
    for text in ("", "# nothing\n", "compression:\n", "---\n"):
        assert parse_config(text, "c.yaml")[0] == Config()


def test_what_is_no_file_is_not_the_defaults(tmp_path: Path) -> None:
    """A folder, a pipe, a link into nothing: somebody meant a configuration to be there."""
    home = find_home({"POSTHOUSE_HOME": str(tmp_path)})
    assert find_config_file(None, home) is None
    for make, expected in (
        (Path.mkdir, "can not be read: it is no file"),
        (os.mkfifo, "can not be read: it is no file"),
        (lambda path: path.symlink_to("nowhere"), "can not be read: No such file"),
    ):
        path = home.path / "config.yaml"
        make(path)
        with pytest.raises(ConfigError, match=expected):
            load_config(find_config_file(None, home))
        path.rmdir() if path.is_dir() else path.unlink()


def test_a_file_larger_than_any_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"# " * 2_000_001)
    with pytest.raises(ConfigError, match="more than 4,000,000 bytes"):
        load_config(path)


def test_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_config(path)
    with pytest.raises(ConfigError, match="can not be read"):
        load_config(tmp_path)


@pytest.mark.parametrize("nobody", ["", "''", "[]", "[null]", "null", "['']"])
def test_an_empty_allow_list_means_nobody(nobody: str) -> None:
    config, _ = parse_config(f"telegram: {{allow_from: {nobody}}}", "c.yaml")
    assert config.telegram.allow_from == []


def test_ids_are_one_type_however_they_are_written() -> None:
    config, _ = parse_config("telegram: {allow_from: [111, '222'], allow_chats: [-1001]}", "c")
    assert config.telegram.allow_from == ["111", "222"]
    assert config.telegram.allow_chats == ["-1001"]
    assert parse_config("telegram: {allow_from: ['*']}", "c")[0].telegram.allow_from == ["*"]


def test_bare_off_is_the_text_off() -> None:
    assert parse_config("compression: {native: off}", "c")[0].compression.native == "off"


def test_aliases() -> None:
    config, _ = parse_config(
        "prompt_caching: {cache_ttl: 1h}\nauxiliary: {compression: {model: small}}", "c"
    )
    assert config.model.cache_ttl == "1h"
    assert config.compression.summary_model == "small"
    same = "prompt_caching: {cache_ttl: 1h}\nmodel: {cache_ttl: 1h}"
    assert parse_config(same, "c")[0].model.cache_ttl == "1h"
    (problem,) = problems("prompt_caching: {cache_ttl: 1h}\nmodel: {cache_ttl: auto}")
    assert problem.startswith("c.yaml:1:18: prompt_caching.cache_ttl: is another name of model.")
    assert "differently" in problem


def test_side_tasks_have_any_name_and_may_say_more_than_we_know() -> None:
    text = "auxiliary: {lcm_summary: {model: m, timeout: 30, odd: [1]}, extraction: , x: {a: b}}"
    config, _ = parse_config(text, "c")
    tasks = side_tasks(config)
    assert tasks["lcm_summary"] == TaskSettings("m", 30.0)
    assert tasks["extraction"] == tasks["compression"] == TaskSettings()
    assert config.model_dump(mode="json", exclude_unset=True)["auxiliary"]["lcm_summary"] == {
        "model": "m",
        "timeout": 30.0,
        "odd": [1],
    }
    assert unavailable(config) == []


def test_settings_of_the_summary_count_for_other_side_tasks_as_well() -> None:
    both, _ = parse_config(
        "compression: {summary_model: s}\nauxiliary: {compression: {timeout: 5}}", "c"
    )
    assert side_tasks(both)["compression"] == TaskSettings("s", 5.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("auxiliary: {a: {timeout: 0}}", "auxiliary.a.timeout"),
        ("auxiliary: {a: {timeout: soon}}", "auxiliary.a.timeout"),
        ("auxiliary: {a: {model: 3}}", "auxiliary.a.model"),
        ("auxiliary: {a: small}", "auxiliary.a: must be a section with keys, e.g. a: {model: …}"),
        ("auxiliary: [a]", "auxiliary"),
    ],
)
def test_side_tasks_that_can_not_be_meant(text: str, said: str) -> None:
    assert said in problems(text)[0]


def test_side_tasks_that_would_go_elsewhere_are_said_aloud() -> None:
    config, _ = parse_config("auxiliary: {a: {base_url: http://127.0.0.1:1}}", "c")
    assert "auxiliary.a: base_url without effect" in unavailable(config)[0]


def test_sections_of_the_chosen_engine_and_plugins_pass_through() -> None:
    text = "context: {engine: lcm}\nlcm: {a: 1}\nplugins: {enabled: [x/my-plug]}\nmy_plug: {b: 2}"
    assert parse_config(text, "c")[1] == {"lcm": {"a": 1}, "my_plug": {"b": 2}}
    assert "unknown key" in problems("lcm: {a: 1}")[0]


def test_a_plugin_can_not_take_one_of_our_sections() -> None:
    assert problems("plugins: {enabled: [telegram]}\ntelegram: {nope: 1}")


class TestEnvironment:
    def test_home_by_precedence(self, tmp_path: Path) -> None:
        env = {"POSTHOUSE_HOME": str(tmp_path / "a"), "STATE_DIRECTORY": "/s", "HOME": "/h"}
        none = tmp_path / "no.service"
        assert find_home(env, none).path == tmp_path / "a"
        del env["POSTHOUSE_HOME"]
        assert find_home(env, none).path == Path("/s")
        del env["STATE_DIRECTORY"]
        assert find_home(env, none).path == Path("/h/.posthouse")

    def test_home_of_the_installed_unit(self, tmp_path: Path) -> None:
        unit = tmp_path / "posthouse.service"
        unit.write_text("[Service]\nExecStart=x\nExecStart=y\nStateDirectory=posthouse\n")
        assert find_home({"HOME": "/h"}, unit).path == Path("/var/lib/posthouse")
        unit.write_text("[Service]\nEnvironment=A=1 POSTHOUSE_HOME=/srv/ph\n")
        assert find_home({"HOME": "/h"}, unit).path == Path("/srv/ph")

    def test_secret_from_variable_file_and_credential(self, tmp_path: Path) -> None:
        (tmp_path / "ANTHROPIC_API_KEY").write_text("from-credential\n")
        named = tmp_path / "named"
        named.write_text("from-file\n")
        env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
        assert read_secrets(env).anthropic_api_key == "from-credential"
        env["ANTHROPIC_API_KEY_FILE"] = str(named)
        assert read_secrets(env).anthropic_api_key == "from-file"
        env["ANTHROPIC_API_KEY"] = " from-variable "
        assert read_secrets(env).anthropic_api_key == "from-variable"
        assert read_secrets({"ANTHROPIC_API_KEY": "  "}).anthropic_api_key is None

    def test_what_init_keeps_in_the_home_is_asked_last(self, tmp_path: Path) -> None:
        kept = tmp_path / "ANTHROPIC_API_KEY"
        kept.write_text("from-home\n")
        kept.chmod(0o600)
        assert read_secrets({}, tmp_path).anthropic_api_key == "from-home"
        # As a unit gives it that has to name all that there could be.
        empty = tmp_path / "credentials" / "ANTHROPIC_API_KEY"
        empty.parent.mkdir()
        empty.write_text(" ")
        managed = {"CREDENTIALS_DIRECTORY": str(empty.parent)}
        assert read_secrets(managed, tmp_path).anthropic_api_key == "from-home"
        assert read_secrets({"ANTHROPIC_API_KEY": "x"}, tmp_path).anthropic_api_key == "x"
        kept.chmod(0o640)
        with pytest.raises(ConfigError, match="chmod 600"):
            read_secrets({}, tmp_path)
        assert read_secrets({"ANTHROPIC_API_KEY": "x"}, tmp_path).anthropic_api_key == "x"

    def test_missing_secret_file_is_an_error(self) -> None:
        wanted = "TELEGRAM_BOT_TOKEN_FILE: /nope/none can not be read: no such file"
        with pytest.raises(ConfigError, match=wanted):
            read_secrets({"TELEGRAM_BOT_TOKEN_FILE": "/nope/none"})

    @pytest.mark.parametrize(
        ("env", "said"),
        [
            ({"TELEGRAM_BOT_TOKEN": "12:AA-x_9", "DISCORD_BOT_TOKEN": "MTI.Gx.y-_z"}, ""),
            ({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_KEY": "k"}, ""),
            ({"TELEGRAM_TOKEN": "12:AA"}, "call it TELEGRAM_BOT_TOKEN"),
            ({"DISCORD_TOKEN": "x"}, "call it DISCORD_BOT_TOKEN"),
            ({"ANTHROPIC_KEY": "x"}, "call it ANTHROPIC_API_KEY"),
            ({"TELEGRAM_BOT_TOKEN": "AA"}, "@BotFather gives 123456789:AA"),
            ({"DISCORD_BOT_TOKEN": "12:AA"}, "a token of Telegram's"),
            ({"DISCORD_BOT_TOKEN": "Bot MTI.x.y"}, "no “Bot ”"),
            ({"DISCORD_BOT_TOKEN_FILE": "EMPTY"}, "is empty, so there is no DISCORD_BOT_TOKEN"),
        ],
    )
    def test_secrets_that_were_meant_otherwise_are_named(
        self, env: dict[str, str], said: str, tmp_path: Path
    ) -> None:
        empty = tmp_path / "empty"
        empty.write_text("\n")
        env = {name: str(empty) if value == "EMPTY" else value for name, value in env.items()}
        lines = doubts_about(read_secrets(env), env)
        assert len(lines) == bool(said)
        assert said in "".join(lines)

    def test_an_empty_credential_is_no_doubt(self, tmp_path: Path) -> None:
        (tmp_path / "DISCORD_BOT_TOKEN").write_text("")
        env = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
        assert doubts_about(read_secrets(env), env) == []

    def test_unreadable_credential_is_an_error_in_words(self, tmp_path: Path) -> None:
        (tmp_path / "DISCORD_BOT_TOKEN").write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match="credential DISCORD_BOT_TOKEN"):
            read_secrets({"CREDENTIALS_DIRECTORY": str(tmp_path)})

    def test_repr_shows_no_secret(self) -> None:
        assert "hush" not in repr(Secrets(telegram_bot_token="hush-hush"))

    def test_named_config_file_has_to_exist(self, tmp_path: Path) -> None:
        home = find_home({"POSTHOUSE_HOME": str(tmp_path)})
        assert find_config_file(None, home) is None
        with pytest.raises(ConfigError, match="no such file"):
            find_config_file(str(tmp_path / "nope.yaml"), home)
