"""The command line helps: a slip is answered with the right word, and the shell completes."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.cli.main import build_parser, main


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("stauts", "there is no command 'stauts'; did you mean status?"),
        ("sessions lst", "there is no sessions action 'lst'; did you mean list?"),
        ("sessions qqqqqq", "there are list, show, search"),
        ("status --jsn", "there is no option --jsn; did you mean --json?"),
        ("doctor --ofline", "did you mean --offline?"),
        ("sessions export x --formt=jsonl", "did you mean --format or --force?"),
        ("pair revoke telegran 5", "did you mean telegram?"),
        ("usage --days 0", "no whole number"),
        ("run extra", "unrecognized arguments: extra"),
        ("--versoin", "did you mean --version?"),
    ],
)
def test_a_slip_is_answered_with_the_nearest_word(
    typed: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(typed.split())
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert "--help` says more" in said


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _parsers(command)


def test_every_command_and_every_argument_says_what_it_is() -> None:
    for parser in _parsers(build_parser()):
        assert parser.description, parser.prog
        for action in parser._actions:
            named = isinstance(action, argparse._SubParsersAction) or action.help
            assert named, f"{parser.prog}: {action.dest}"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "posthouse.bash"
    with file.open("w") as stream, contextlib.redirect_stdout(stream):
        assert main(["completion", "bash"]) == 0
    return file


def _completed(script: Path, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash here")
    line = f"""
        source {script}
        COMP_WORDS=(posthouse {" ".join(w or "''" for w in words)})
        COMP_CWORD={len(words)}
        COMP_LINE="posthouse {" ".join(words)}"; COMP_POINT=${{#COMP_LINE}}
        eval "$(complete -p posthouse | sed 's/.*-F \\([^ ]*\\).*/\\1/')" posthouse
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        [bash, "--norc", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
        cwd=script.parent,
    )
    assert done.returncode == 0, done.stderr
    return {word.strip() for word in done.stdout.splitlines() if word.strip()}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("",), {"run", "init", "doctor", "sessions", "status"}),
        (("do",), {"doctor"}),
        (("sessions", ""), {"list", "show", "search", "export", "import"}),
        (("sessions", "ex"), {"export"}),
        (("sessions", "export", "--f"), {"--format"}),
        (("sessions", "export", "--format", ""), {"jsonl", "markdown"}),
        (("doctor", "--"), {"--json", "--offline", "--config"}),
        (("completion", ""), {"bash", "zsh", "fish"}),
        (("run", "--config", "posth"), {"posthouse.bash"}),
    ],
)
def test_bash_completes(script: Path, words: tuple[str, ...], offered: set[str]) -> None:
    assert offered <= _completed(script, *words)


@pytest.mark.parametrize(("shell", "check"), [("zsh", "-n"), ("fish", "--no-execute")])
def test_other_shells_take_their_script(
    shell: str, check: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert "doctor" in text
    program = shutil.which(shell)
    if program is not None:
        (tmp_path / "script").write_text(text)
        done = subprocess.run([program, check, "script"], cwd=tmp_path, check=False)
        assert done.returncode == 0
