"""The home that plugins see: copies, nothing secret, all at once, never the live store."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from agent.errors import StoreUnavailable
from gateway.config.environment import set_up_for_plugins
from gateway.plugins.facade import Facade, is_secret_name, without_secrets


@pytest.fixture
def facade(tmp_path: Path) -> Facade:
    (tmp_path / "plugins").mkdir()
    return Facade(tmp_path / "hermes", tmp_path / "plugins")


def test_it_is_made_and_made_again(facade: Facade, tmp_path: Path) -> None:
    assert facade.prepare({"a": 1}, []) == []
    folder = tmp_path / "hermes"
    (folder / "lcm.db").write_text("theirs")
    (folder / "config.yaml").write_text("rewritten: by a plugin")
    assert facade.prepare({"a": 2}, []) == []
    assert yaml.safe_load((folder / "config.yaml").read_text()) == {"a": 2}
    assert (folder / "lcm.db").read_text() == "theirs"
    assert (folder / "plugins").resolve() == tmp_path / "plugins"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "config.yaml").stat().st_mode & 0o777 == 0o600


def test_what_stands_in_the_way_of_the_link_is_left_alone(facade: Facade, tmp_path: Path) -> None:
    (tmp_path / "hermes" / "plugins").mkdir(parents=True)
    (remark,) = facade.prepare({}, [])
    assert "in the way" in remark
    other = Facade(tmp_path / "h2", tmp_path / "plugins")
    (tmp_path / "h2").mkdir()
    (tmp_path / "h2" / "plugins").symlink_to("/nowhere")
    assert other.prepare({}, []) == []
    assert (tmp_path / "h2" / "plugins").resolve() == tmp_path / "plugins"


def test_nothing_secret_is_in_the_copy() -> None:
    told = {
        "telegram": {"webhook": {"secret": "s3cr3t"}, "admins": ["1"]},
        "model": {"max_tokens": 9, "name": "m", "base_url": "https://known-value@x"},
        "plugins": {"entries": {"a": {"settings": {"apiKey": "k", "api_key": 7, "keep": True}}}},
        "list": [{"TOKEN": "t"}, "known-value"],
        "auth": {"kind": "x"},
        "key": None,
    }
    assert without_secrets(told, ["known-value"]) == {
        "telegram": {"webhook": {}, "admins": ["1"]},
        "model": {"max_tokens": 9, "name": "m", "base_url": "https://[REDACTED]@x"},
        "plugins": {"entries": {"a": {"settings": {"keep": True}}}},
        "list": [{}, "[REDACTED]"],
        "auth": {"kind": "x"},
        "key": None,
    }


def test_names_of_secrets() -> None:
    assert all(map(is_secret_name, ("api_key", "apiKey", "TOKEN", "bot-token", "X-Api-Key")))
    assert not any(map(is_secret_name, ("max_tokens", "monkey", "keyboard", "tokens", "path")))


@dataclass
class Listing:
    """An archive that lists sessions, or can not."""

    rows: list[Any] = field(default_factory=list)
    broken: bool = False
    asked: list[int] = field(default_factory=list)

    async def list_sessions(self, *, conversation_id: str | None = None, limit: int = 50) -> Any:
        if self.broken:
            raise StoreUnavailable("gone")
        self.asked.append(limit)
        return self.rows[:limit]

    async def session_infos(self, ids: Sequence[str]) -> Any:
        return [row for row in self.rows if row.id in ids]


def session(
    id: str,  # noqa: A002
    parent: str | None = None,
    ended: float | None = None,
    started: float = 1.0,
) -> Any:
    return SimpleNamespace(
        id=id, parent_session_id=parent, model="m", started_at=started, ended_at=ended
    )


async def test_the_list_of_sessions(facade: Facade, tmp_path: Path) -> None:
    facade.prepare({}, [])
    listing: Any = Listing([session("b", "a"), session("a", None, 2.0)])
    path = tmp_path / "hermes" / "state.db"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as before:
        await facade.refresh(listing)
        assert before.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
    before.close()
    assert path.stat().st_mode & 0o777 == 0o400
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    columns = "id, parent_session_id, model_config, started_at, ended_at"
    assert reader.execute(f"SELECT {columns} FROM sessions ORDER BY id").fetchall() == [
        ("a", None, '{"model": "m"}', 1.0, 2.0),
        ("b", "a", '{"model": "m"}', 1.0, None),
    ]
    reader.close()
    # Nothing new: the file stays as it is.
    inode = path.stat().st_ino
    await facade.refresh(listing)
    assert path.stat().st_ino == inode
    listing.broken = True
    await facade.refresh(listing)
    assert path.stat().st_ino == inode
    assert sorted(p.name for p in path.parent.iterdir()) == ["config.yaml", "plugins", "state.db"]


async def test_only_the_newest_are_asked_for_again_and_whom_they_go_on_from(
    facade: Facade, tmp_path: Path
) -> None:
    facade.prepare({}, [])
    old = [session(f"old{n}") for n in range(200)]
    listing: Any = Listing(list(old))
    await facade.refresh(listing)
    listing.rows = [session("child", "old150"), *old]
    listing.rows[151] = session("old150", None, 9.0)
    await facade.refresh(listing)
    assert listing.asked == [500, 50]
    with sqlite3.connect(f"file:{tmp_path}/hermes/state.db?mode=ro", uri=True) as reader:
        query = "SELECT id, ended_at FROM sessions WHERE id IN ('child', 'old150') ORDER BY id"
        assert reader.execute(query).fetchall() == [("child", None), ("old150", 9.0)]
        assert reader.execute("SELECT count(*) FROM sessions").fetchone() == (201,)
    reader.close()


async def test_a_long_life_does_not_fill_it(
    facade: Facade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.plugins.facade.MOST", 3)
    facade.prepare({}, [])
    listing: Any = Listing()
    for n in range(5):
        listing.rows.insert(0, session(f"s{n}", started=float(n)))
        await facade.refresh(listing)
    with sqlite3.connect(f"file:{tmp_path}/hermes/state.db?mode=ro", uri=True) as reader:
        kept = reader.execute("SELECT id FROM sessions ORDER BY id").fetchall()
    reader.close()
    assert kept == [("s2",), ("s3",), ("s4",)]


async def test_a_folder_that_is_gone_is_no_end(facade: Facade, tmp_path: Path) -> None:
    await facade.refresh(Listing([session("a")]))  # type: ignore[arg-type]
    assert not (tmp_path / "hermes").exists()


def test_the_environment_of_plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("TELEGRAM_BOT_TOKEN", "ANTHROPIC_API_KEY", "OTHER_KEY", "DISCORD_BOT_TOKEN_FILE"):
        monkeypatch.setenv(name, "x")
    for name in ("HERMES_HOME", "LCM_DATABASE_PATH", "CREDENTIALS_DIRECTORY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("LCM_DATABASE_PATH")
    set_up_for_plugins(tmp_path, {"ANTHROPIC_API_KEY", "OTHER_KEY"})
    assert os.environ["HERMES_HOME"] == str(tmp_path)
    assert os.environ["LCM_DATABASE_PATH"] == str(tmp_path / "lcm.db")
    assert os.environ["ANTHROPIC_API_KEY"] == "x"
    assert os.environ["OTHER_KEY"] == "x"
    gone = ("TELEGRAM_BOT_TOKEN", "DISCORD_BOT_TOKEN_FILE", "CREDENTIALS_DIRECTORY")
    assert not any(name in os.environ for name in gone)
