"""What `posthouse service` writes and refuses. Under a real systemd: tests/systemd."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agent.errors import PosthouseError
from gateway.cli import service
from gateway.cli.main import main
from gateway.config.environment import find_home
from gateway.service import installed
from gateway.service.install import (
    CopyHome,
    MakeFolder,
    MoveHome,
    Places,
    RemoveFile,
    Run,
    Step,
    Wanted,
    WriteFile,
    do,
    in_words,
    install_steps,
    uninstall_steps,
)
from gateway.service.installed import (
    home_of_installed,
    look,
    not_only_roots,
    rendered_unit,
    this_layout,
    unreadable,
)
from gateway.service.unit import (
    SERVICE,
    TOOLS,
    UNITS,
    Layout,
    further_credentials,
    home_name,
    odd_paths,
    rendered,
)

TEMPLATES = Path(__file__).parents[3] / "systemd"
PLAIN = Layout(
    Path("/opt/posthouse/.venv/bin/posthouse"),
    Path("/opt/posthouse/.venv/bin/python"),
    Path("/opt/posthouse/agent/tools/command_door.py"),
    TEMPLATES,
)
ELSEWHERE = Layout(
    Path("/srv/bots/v/bin/posthouse"),
    Path("/srv/bots/v/bin/python"),
    Path("/srv/bots/v/lib/agent/tools/command_door.py"),
    TEMPLATES,
    home_name="bot-2",
)
UNIT_TEXTS = {name: rendered_unit(name, ELSEWHERE) for name in UNITS}


class TestUnits:
    def test_a_template_is_what_stands_in_opt(self) -> None:
        for name in UNITS:
            text = (TEMPLATES / name).read_text()
            where = Layout(PLAIN.program, PLAIN.python, PLAIN.door, Path("/opt/posthouse/systemd"))
            assert rendered(text, where) == text

    def test_every_path_becomes_the_installations_own(self) -> None:
        for name, text in UNIT_TEXTS.items():
            assert "/opt/posthouse" not in text, name
            assert "lib/private/posthouse" not in text
            assert "lib/posthouse" not in text
        text = UNIT_TEXTS[SERVICE]
        assert "\nExecStart=/srv/bots/v/bin/posthouse run\n" in text
        assert "\nStateDirectory=bot-2\n" in text
        assert "\nStateDirectoryMode=0700\n" in text
        socket, command = (UNIT_TEXTS[name] for name in TOOLS)
        assert "\nListenStream=/var/lib/private/bot-2/tools.sock\n" in socket
        assert "\nBindPaths=/var/lib/private/bot-2/workspace\n" in command
        start = "/srv/bots/v/bin/python -I -S /srv/bots/v/lib/agent/tools/command_door.py"
        assert f"\nExecStart={start} /var/lib/private/bot-2/workspace\n" in command

    def test_the_command_line_finds_the_home_that_it_says(self, tmp_path: Path) -> None:
        unit = tmp_path / SERVICE
        unit.write_text(UNIT_TEXTS[SERVICE])
        assert find_home({"HOME": "/h"}, unit).path == Path("/var/lib/bot-2")

    def test_the_socket_is_where_the_daemon_looks(self) -> None:
        home = find_home({"POSTHOUSE_HOME": "/x"}).tools_socket.name
        assert f"/{home}\n" in UNIT_TEXTS[TOOLS[0]]

    def test_a_call_that_is_refused_is_no_end_of_the_process(self) -> None:
        """Node asks for one when it starts, and some library will one day."""
        for name in (SERVICE, TOOLS[1]):
            assert "\nSystemCallErrorNumber=EPERM\n" in UNIT_TEXTS[name]

    def test_a_secret_that_is_not_there_is_no_end_of_the_start(self) -> None:
        text = UNIT_TEXTS[SERVICE] + further_credentials(["TRACKER", "not-one", ".x", "a"])
        loaded = [n.split(":")[0] for n in text.split("LoadCredential=")[1:]]
        assert "TRACKER" in loaded
        assert len(loaded) == 5
        for name in loaded:
            assert f"\nSetCredential={name}:\\x20\n" in text

    @pytest.mark.parametrize(
        ("folder", "name"),
        [
            ("/var/lib/posthouse", "posthouse"),
            ("/var/lib/private/bot_2", "bot_2"),
            ("/var/lib/private", None),
            ("/var/lib", None),
            ("/srv/bot", None),
            ("/var/lib/a b", None),
            ("/var/lib/a/b", None),
            ("/var/lib/..", None),
        ],
    )
    def test_what_can_be_a_home(self, folder: str, name: str | None) -> None:
        assert home_name(Path(folder)) == name

    def test_paths_that_a_unit_file_would_read_otherwise(self) -> None:
        assert odd_paths(PLAIN) == []
        for path in ("/srv/my bots/p", "/srv/50%/p", '/srv/"x"/p', "/srv/$HOME/p"):
            layout = Layout(Path(path), PLAIN.python, PLAIN.door, PLAIN.templates)
            assert odd_paths(layout) == [path]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def steps_of(places: Places, **wanted: object) -> list[Step]:
    chosen = Wanted(**{"secrets": {}, **wanted})  # type: ignore[arg-type]
    return install_steps(UNIT_TEXTS, ELSEWHERE, chosen, places)


def carry_out(steps: list[Step]) -> None:
    for step in steps:
        if not isinstance(step, Run):
            do(step)


class TestInstalling:
    def test_once_all_of_it_and_then_nothing(self, places: Places) -> None:
        steps = steps_of(places, secrets={"TELEGRAM_BOT_TOKEN": "1:secret"}, start=True)
        assert not any("1:secret" in in_words(step) for step in steps)
        carry_out(steps)
        token = places.credentials / "TELEGRAM_BOT_TOKEN"
        assert token.read_text() == "1:secret\n"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        for folder in (places.credentials, places.at(ELSEWHERE.real_home)):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for name in UNITS:
            assert (places.units / name).read_text() == UNIT_TEXTS[name]
        again = steps_of(places)
        assert again == [Run(("systemctl", "--quiet", "enable", SERVICE))]

    def test_only_what_has_changed(self, places: Places) -> None:
        carry_out(steps_of(places))
        (places.units / SERVICE).write_text("old")
        written, *rest = steps_of(places)
        assert isinstance(written, WriteFile)
        assert (written.path.name, written.anew) == (SERVICE, True)
        assert rest[0] == Run(("systemctl", "daemon-reload"))

    def test_without_trust_the_tools_units_go(self, places: Places) -> None:
        carry_out(steps_of(places))
        steps = steps_of(places, tools=False)
        assert [s.path.name for s in steps if isinstance(s, RemoveFile)] == list(TOOLS)
        carry_out(steps)
        assert not any("tools" in in_words(step) for step in steps_of(places, tools=False))

    def test_further_secrets_come_and_go(self, places: Places) -> None:
        carry_out(steps_of(places))
        (places.credentials / "TRACKER").write_text("x")
        carry_out(steps_of(places))
        drop_in = places.units / f"{SERVICE}.d" / "credentials.conf"
        assert "LoadCredential=TRACKER:/etc/posthouse/TRACKER" in drop_in.read_text()
        (places.credentials / "TRACKER").unlink()
        carry_out(steps_of(places))
        assert not drop_in.parent.exists()

    def test_a_home_is_copied_into_an_empty_one_only(self, places: Places, tmp_path: Path) -> None:
        source = tmp_path / "mine"
        (source / "plugins").mkdir(parents=True)
        (source / "config.yaml").write_text("{}")
        (source / "control.sock").write_text("")
        carry_out(steps_of(places, source=source))
        home = places.at(ELSEWHERE.real_home)
        assert sorted(os.listdir(home)) == ["config.yaml", "plugins"]
        with pytest.raises(PosthouseError, match=r"has something in it \(config.yaml, plugins\)"):
            steps_of(places, source=source)

    def test_a_home_that_is_in_use_is_not_copied(self, tmp_path: Path) -> None:
        import fcntl

        source = tmp_path / "mine"
        source.mkdir()
        with (source / "posthouse.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(PosthouseError, match="another posthouse"):
                do(CopyHome(source, tmp_path / "there"))
        assert not (tmp_path / "there").exists()

    def test_a_home_of_a_fixed_user_moves(self, places: Places) -> None:
        old = places.at(ELSEWHERE.home)
        old.mkdir(parents=True)
        (old / "state.db").write_text("x")
        steps = steps_of(places)
        assert MoveHome(old, places.at(ELSEWHERE.real_home)) in steps
        carry_out(steps)
        assert (places.at(ELSEWHERE.real_home) / "state.db").exists()
        assert not any(isinstance(step, MakeFolder | MoveHome) for step in steps_of(places))

    def test_two_homes_are_for_a_person(self, places: Places) -> None:
        for path in (ELSEWHERE.home, ELSEWHERE.real_home):
            places.at(path).mkdir(parents=True)
        with pytest.raises(PosthouseError, match="two homes"):
            steps_of(places)

    def test_what_can_not_be_done_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        step = WriteFile(tmp_path / "file" / "x", "", 0o600)
        with pytest.raises(PosthouseError, match=r"could not write .*/file/x"):
            do(step)


class TestUninstalling:
    def test_data_stay_unless_they_shall_not(self, places: Places) -> None:
        carry_out(steps_of(places, secrets={"A_SECRET": "x"}))
        carry_out(uninstall_steps(ELSEWHERE, places, purge=False))
        assert list(places.units.iterdir()) == []
        assert places.at(ELSEWHERE.real_home).exists()
        assert places.credentials.exists()
        assert uninstall_steps(ELSEWHERE, places, purge=False) == []
        carry_out(uninstall_steps(ELSEWHERE, places, purge=True))
        assert not places.at(ELSEWHERE.real_home).exists()
        assert not places.credentials.exists()


class TestWhatIsThere:
    def test_nothing_is(self, tmp_path: Path) -> None:
        found = look(ELSEWHERE, tmp_path)
        assert (found.service, found.outdated) == (None, ())

    def test_all_of_it_or_an_older_one(self, places: Places) -> None:
        carry_out(steps_of(places))
        found = look(ELSEWHERE, places.units)
        assert (found.program, found.outdated) == (ELSEWHERE.program, ())
        assert look(replace(ELSEWHERE, home_name="posthouse"), places.units) == found
        (places.units / TOOLS[0]).write_text("old")
        assert look(ELSEWHERE, places.units).outdated == (TOOLS[0],)

    def test_an_update_keeps_the_home(self, places: Places) -> None:
        assert home_of_installed(places.units) is None
        carry_out(steps_of(places))
        assert home_of_installed(places.units) == "bot-2"
        (places.units / SERVICE).write_text("[Service]\nEnvironment=POSTHOUSE_HOME=/srv/x\n")
        with pytest.raises(PosthouseError, match="not of our making"):
            home_of_installed(places.units)

    def test_where_we_are(self) -> None:
        layout = this_layout()
        assert layout.door.is_file()
        assert (layout.templates / SERVICE).is_file()
        assert layout.program.parent == Path(sys.executable).parent

    def test_a_place_that_services_do_not_see(self) -> None:
        layout = Layout(Path("/home/me/p/posthouse"), PLAIN.python, PLAIN.door, TEMPLATES)
        [first, *_] = unreadable(layout)
        assert first == "/home/me/p/posthouse is in /home, which is closed to services"

    def test_a_folder_that_is_closed_to_others(self, tmp_path: Path) -> None:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        program = closed / "posthouse"
        program.write_text("")
        layout = Layout(program, PLAIN.python, PLAIN.door, TEMPLATES)
        assert any("closed to other users (mode 7" in line for line in unreadable(layout))

    def test_what_runs_as_root_belongs_to_root(self, tmp_path: Path) -> None:
        (tmp_path / "python").write_text("")
        (tmp_path / "python").chmod(0o775)
        layout = Layout(PLAIN.program, tmp_path / "python", PLAIN.door, TEMPLATES)
        assert not_only_roots(layout) == f"{tmp_path / 'python'} can be changed by others than root"


class TestCommand:
    @pytest.fixture
    def fits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(service, "unreadable", lambda layout: [])

    def test_without_systemd(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        monkeypatch.setattr(service, "has_systemd", lambda: installed.has_systemd(tmp_path / "no"))
        for words in (["install"], ["uninstall"], ["logs"]):
            assert main(["service", *words]) == 1
            assert "systemd does not run here" in capsys.readouterr().err

    @pytest.mark.usefixtures("fits")
    def test_a_dry_run_only_talks(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["service", "install", "--dry-run", "--home", "/var/lib/nobody-has-this"]) == 0
        said = capsys.readouterr().out
        assert all(line.startswith("would ") for line in said.splitlines())
        assert "would write /etc/systemd/system/posthouse.service" in said
        assert not Path("/var/lib/private/nobody-has-this").exists()

    def test_a_home_elsewhere(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["service", "install", "--dry-run", "--home", "/srv/bot"]) == 1
        assert "/srv/bot can not be the service's home" in capsys.readouterr().err

    def test_an_installation_that_the_service_could_not_run(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(service, "unreadable", lambda layout: ["/home/x is in /home"])
        assert main(["service", "install", "--dry-run"]) == 1
        said = capsys.readouterr().err
        assert "/home/x is in /home" in said
        assert "git clone" in said


def test_what_the_service_has_to_read_is_readable_whatever_the_umask(tmp_path: Path) -> None:
    """`posthouse init` lets nobody else read what it makes, and offers to install the service."""
    module = tmp_path / "agent" / "tools" / "command_door.py"
    module.parent.mkdir(parents=True)
    module.write_text("X = 1\n")
    module.chmod(0o644)
    unit = tmp_path / "system" / "posthouse.service.d" / "credentials.conf"
    before = os.umask(0o077)
    try:
        do(WriteFile(unit, "[Service]\n", 0o644))
        service._compile(replace(PLAIN, door=module))
    finally:
        os.umask(before)
    (compiled,) = (tmp_path / "agent").rglob("*.pyc")
    made = (compiled.parent, compiled, unit.parent, unit)
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o755, 0o644, 0o755, 0o644]
