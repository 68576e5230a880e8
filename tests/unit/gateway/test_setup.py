"""What `posthouse init` makes of answers: ids, zones, the text of config.yaml, files."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.errors import ConfigError, PosthouseError
from gateway.config.environment import Home
from gateway.config.loading import parse_config
from gateway.config.models import Config
from gateway.config.zones import is_zone, nearest_zones
from gateway.setup.config_edit import edited
from gateway.setup.config_text import NOTHING_YET, changes, rendered
from gateway.setup.keeping import check_home, write_all
from gateway.setup.people import LetIn, ask_admins, ask_ids
from gateway.setup.wishes import Wishes, as_numbers, read_ids
from gateway.setup.zone import ask_zone, guessed

ROOT = Path(__file__).parents[3]
WANTED: dict[str, Any] = {
    "telegram.allow_from": [5, 6],
    "telegram.allow_chats": [],
    "discord.allow_from": [7],
    "model.name": "claude-haiku-5-5",
    "timezone": "Europe/Berlin",
}


@pytest.mark.parametrize(
    ("typed", "people", "groups", "wrong"),
    [
        ("123", ("123",), (), ()),
        (" 1, 2;3  4 ", ("1", "2", "3", "4"), (), ()),
        ("[1, 1]", ("1",), (), ()),
        ("-1001234", (), ("-1001234",), ()),
        ("@anna", (), (), ("@anna",)),
        ("007", (), (), ("007",)),
        ("*", ("*",), (), ()),
        ("", (), (), ()),
    ],
)
def test_ids_as_people_type_them(
    typed: str, people: tuple[str, ...], groups: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    ids = read_ids(typed)
    assert (ids.people, ids.groups, ids.wrong) == (people, groups, wrong)


def test_a_wildcard_is_no_number() -> None:
    assert as_numbers(("1", "*")) == [1, "*"]


class Scripted:
    """Answers from a list; what was said is kept."""

    def __init__(self, *answers: str) -> None:
        self._answers = self.left = list(answers)
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def ask(self, question: str, default: str = "") -> str:
        return self._answers.pop(0) or default

    def secret(self, question: str) -> str:
        return self._answers.pop(0)

    def sure(self, question: str, *, default: bool) -> bool:
        self.said.append(question)
        return {"y": True, "n": False, "": default}[self._answers.pop(0)]


@pytest.mark.parametrize(
    ("answers", "people", "groups"),
    [
        (("@anna", "5"), ("5",), ()),
        (("*", "n", "5"), ("5",), ()),
        (("*", "y"), ("*",), ()),
        (("*", "", "5"), ("5",), ()),
        (("find", "5"), ("5",), ()),
        (("",), ("1",), ("-2",)),
        (("5 -7",), ("5",), ("-7",)),
        (("700000000000000111", "4503599627370496"), ("4503599627370496",), ()),
    ],
)
def test_who_may_talk(
    answers: tuple[str, ...], people: tuple[str, ...], groups: tuple[str, ...]
) -> None:
    found = ask_ids(Scripted(*answers), "?", ["1"], ["-2"], finder=None, groups_allowed=True)
    assert (found.people, found.groups) == (people, groups)


def test_nobody_is_said_aloud() -> None:
    talk = Scripted("")
    assert ask_ids(talk, "?", [], [], finder=None, groups_allowed=True) == LetIn((), ())
    assert "nobody gets an answer" in talk.said[-1]
    assert "Enter: nobody yet." in talk.said[0]
    assert "brackets" not in talk.said[0]


def test_brackets_are_named_where_there_are_some() -> None:
    talk = Scripted("")
    ask_ids(talk, "?", ["1"], [], finder=None, groups_allowed=True)
    assert "Enter: as in the brackets." in talk.said[0]


def test_ids_of_discord_have_no_minus() -> None:
    talk = Scripted("-5", "5")
    assert ask_ids(talk, "?", [], [], finder=lambda: None, groups_allowed=False).people == ("5",)


@pytest.mark.parametrize(
    ("let_in", "admins", "answers", "become"),
    [
        (LetIn(("5",), ()), (), ("",), ("5",)),
        (LetIn(("5",), ()), (), ("n",), ()),
        (LetIn(("5", "6"), (), own="6"), (), ("",), ("6",)),
        (LetIn(("5", "6"), ()), (), ("",), ()),
        (LetIn(("5", "6"), ()), (), ("7", "6"), ("6",)),
        (LetIn(("5", "6"), ()), ("9",), (), ("9",)),
        (LetIn(("*",), ()), (), (), ()),
        (LetIn((), ("-1",)), (), (), ()),
    ],
)
def test_who_is_an_admin(
    let_in: LetIn, admins: tuple[str, ...], answers: tuple[str, ...], become: tuple[str, ...]
) -> None:
    talk = Scripted(*answers)
    assert ask_admins(talk, let_in, admins) == become
    assert talk.left == [], "no more is asked than that"


def test_whoever_was_found_is_the_own_one() -> None:
    talk = Scripted("find", "6,5")
    found = ask_ids(talk, "?", [], [], finder=lambda: "5", groups_allowed=True)
    assert found == LetIn(("6", "5"), (), own="5")


def test_a_file_with_nothing_to_set_says_what_there_is_to_set() -> None:
    text = rendered({})
    assert parse_config(text, "config.yaml") == (Config(), {})
    kept = "\n".join(line[2:] for line in NOTHING_YET.splitlines()[2:])
    config, _ = parse_config(kept, "config.yaml")
    assert config.telegram.admins == ["123456789"]
    assert config.timezone == "Europe/Berlin"


TEXTS = {
    "nothing": "",
    "only a comment": "# mine\n",
    "a block list": "telegram:\n  allow_from:\n    - 1\n    - 2  # A.\n  # low\n  pairing: true\n",
    "a list at the margin": "telegram:\n  allow_from:\n  - 1\n  pairing: true\n",
    "flow": "telegram: {pairing: true}\n",
    "an empty section": "telegram:\nlogging: {level: DEBUG}  # loud\n",
    "empty braces": "telegram: {}\n",
    "no end of line": "telegram:\n  pairing: true  # mine",
    "comments above": "# one\ntelegram:  # two\n  # three\n  pairing: true\n",
    "null": "telegram: null\ntimezone: ~\n",
    "a quoted key": '"telegram":\n  "allow_from": [1]\n',
    "many lines": "agent:\n  system_prompt: |\n    telegram:\n      allow_from: [9]\n",
    "an anchor": "telegram: &t\n  pairing: true\ndiscord:\n  pairing: true\n",
    "windows": "telegram:\r\n  pairing: true\r\n",
    "the shipped one": (ROOT / "config.yaml").read_text(encoding="utf-8"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_keys_are_set_in_any_text_and_the_rest_stays(name: str) -> None:
    before = TEXTS[name]
    existing = yaml.safe_load(before) or {}
    after = edited(before, existing, WANTED)
    config, _ = parse_config(after, "c")
    assert config.telegram.allow_from == ["5", "6"]
    assert config.telegram.allow_chats == []
    assert config.discord.allow_from == ["7"]
    assert config.model.name == "claude-haiku-5-5"
    assert config.timezone == "Europe/Berlin"
    was, _ = parse_config(before, "c")
    assert config.telegram.pairing == was.telegram.pairing
    assert config.logging == was.logging
    assert config.agent == was.agent
    if existing:
        comments = [line.partition("#")[2] for line in before.splitlines() if "#" in line]
        assert [c for c in comments if c not in after] == []
    assert edited(after, yaml.safe_load(after), WANTED) == after


def test_a_key_under_its_old_name_makes_way() -> None:
    text = "model: {default: x, max_tokens: 99}\n"
    after = edited(text, yaml.safe_load(text), WANTED)
    assert yaml.safe_load(after)["model"] == {"max_tokens": 99, "name": "claude-haiku-5-5"}


def test_what_does_not_go_together_is_not_written() -> None:
    text = "telegram: {mode: webhook, webhook: {url: 'https://bot.example.org/x'}}\n"
    with pytest.raises(ConfigError):
        edited(text, yaml.safe_load(text), {"telegram.base_url": "no address"})


def test_a_diff_is_what_changes() -> None:
    assert changes("a: 1\n", "a: 1\n") == ""
    assert "+a: 2" in changes("a: 1\n", "a: 2\n")


def test_wishes_do_not_show_their_secrets() -> None:
    assert "123:abc" not in repr(Wishes({"TELEGRAM_BOT_TOKEN": "123:abc"}))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("Berlin", "Europe/Berlin"),
        ("europe/berln", "Europe/Berlin"),
        ("new york", "America/New_York"),
    ],
)
def test_a_zone_that_was_meant(typed: str, meant: str) -> None:
    assert meant in nearest_zones(typed)


@pytest.mark.parametrize("name", ["Mars", "Moon", "Pluto"])
def test_what_is_like_no_zone_is_met_with_no_guess(name: str) -> None:
    assert nearest_zones(name) == []


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "/etc/localtime", "Nowhere/Land"])
def test_what_is_no_zone(name: str) -> None:
    assert not is_zone(name)


def test_the_zone_is_guessed(tmp_path: Path) -> None:
    assert guessed({"TZ": ":Asia/Tokyo"}, tmp_path) == "Asia/Tokyo"
    assert guessed({}, tmp_path) == "UTC"
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/localtime").symlink_to("/usr/share/zoneinfo/Europe/Vienna")
    assert guessed({}, tmp_path) == "Europe/Vienna"
    (tmp_path / "etc/timezone").write_text("Europe/Zurich\n")
    assert guessed({"TZ": "nonsense"}, tmp_path) == "Europe/Zurich"


@pytest.mark.parametrize(
    ("kept", "env", "typed", "taken"),
    [
        (None, {}, "", None),
        (None, {}, "Europe/Vienna", None),
        (None, {}, "Europe/Paris", "Europe/Paris"),
        (None, {"TZ": "Asia/Tokyo"}, "", "Asia/Tokyo"),  # a service would not have it
        (None, {"TZ": "Asia/Tokyo"}, "Europe/Vienna", "Europe/Vienna"),
        (None, {"TZ": ":Europe/Vienna"}, "", None),
        ("Europe/Vienna", {}, "", "Europe/Vienna"),
    ],
)
def test_the_systems_zone_needs_no_key(
    tmp_path: Path, kept: str | None, env: dict[str, str], typed: str, taken: str | None
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/localtime").symlink_to("/usr/share/zoneinfo/Europe/Vienna")
    assert ask_zone(Scripted(typed), kept, env, tmp_path) == taken


def test_a_copied_localtime_names_no_zone_so_the_key_is_written(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/localtime").write_bytes(b"")
    assert ask_zone(Scripted("UTC"), None, {}, tmp_path) == "UTC"


def test_a_machine_without_a_zone_is_at_utc(tmp_path: Path) -> None:
    assert ask_zone(Scripted(""), None, {}, tmp_path) is None


class TestFiles:
    def home(self, tmp_path: Path) -> Home:
        return Home(tmp_path / "home", "a test")

    def test_all_is_there_for_its_owner_only(self, tmp_path: Path) -> None:
        previous = os.umask(0)
        try:
            home = self.home(tmp_path)
            written = write_all(home, {"TELEGRAM_BOT_TOKEN": "1:a"}, "timezone: UTC\n")
        finally:
            os.umask(previous)
        assert written.kept_as is None
        modes = {p.name: p.stat().st_mode & 0o777 for p in (home.path, *home.path.rglob("*"))}
        assert modes == {
            "home": 0o700,
            "secrets": 0o700,
            "TELEGRAM_BOT_TOKEN": 0o600,
            "config.yaml": 0o600,
        }

    def test_what_was_there_is_kept_each_time(self, tmp_path: Path) -> None:
        home = self.home(tmp_path)
        for number in range(3):
            write_all(home, {}, f"# {number}\n")
        assert (home.path / "config.yaml.bak").read_text() == "# 0\n"
        assert (home.path / "config.yaml.bak2").read_text() == "# 1\n"
        assert (home.path / "config.yaml").read_text() == "# 2\n"

    def test_a_link_stays_one(self, tmp_path: Path) -> None:
        home = self.home(tmp_path)
        home.path.mkdir()
        elsewhere = tmp_path / "dotfiles.yaml"
        elsewhere.write_text("# old\n")
        (home.path / "config.yaml").symlink_to(elsewhere)
        write_all(home, {}, "# new\n")
        assert (home.path / "config.yaml").is_symlink()
        assert elsewhere.read_text() == "# new\n"

    def test_a_disk_that_takes_nothing_changes_nothing(self, tmp_path: Path) -> None:
        home = self.home(tmp_path)
        write_all(home, {}, "# old\n")
        (home.path / "secrets").write_text("in the way")
        with pytest.raises(PosthouseError, match="can not be written"):
            write_all(home, {"TELEGRAM_BOT_TOKEN": "1:a"}, "# new\n")
        assert (home.path / "config.yaml").read_text() == "# old\n"
        assert sorted(p.name for p in home.path.iterdir()) == ["config.yaml", "secrets"]

    @pytest.mark.parametrize("stops", ["open", "fsync", "replace"])
    def test_ctrl_c_in_the_middle_leaves_all_or_nothing(
        self, tmp_path: Path, stops: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It comes at a call of the system's: before the renamings it ends them, then it waits."""
        home = self.home(tmp_path)
        write_all(home, {}, "# old\n")
        real: Callable[..., Any] = getattr(os, stops)
        calls = 0

        def interrupted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:
                signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            return real(*args, **kwargs)

        monkeypatch.setattr(os, stops, interrupted)
        with pytest.raises(KeyboardInterrupt):
            write_all(home, {"TELEGRAM_BOT_TOKEN": "1:a"}, "# new\n")
        monkeypatch.undo()
        new = (home.path / "config.yaml").read_text() == "# new\n"
        assert new is (stops == "replace")
        assert (home.path / "secrets/TELEGRAM_BOT_TOKEN").exists() is new
        assert not list(home.path.rglob("*.part"))

    def test_a_home_that_can_not_be_is_said_at_once(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("")
        with pytest.raises(PosthouseError, match="is no folder"):
            check_home(Home(file / "below", "a test"))
        check_home(self.home(tmp_path))


def test_one_that_can_not_be_written_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    home = Home(tmp_path, "a test")
    (home.secrets / "TELEGRAM_BOT_TOKEN").mkdir(parents=True)
    (home.secrets / "ANTHROPIC_API_KEY").write_text("the old one")
    new = {"ANTHROPIC_API_KEY": "new", "TELEGRAM_BOT_TOKEN": "new"}
    with pytest.raises(PosthouseError, match="TELEGRAM_BOT_TOKEN can not be written"):
        write_all(home, new, "model: {}\n")
    assert (home.secrets / "ANTHROPIC_API_KEY").read_text() == "the old one"
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "ANTHROPIC_API_KEY",
        "TELEGRAM_BOT_TOKEN",
        "secrets",
    ]
