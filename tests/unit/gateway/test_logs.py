"""The log: no secret leaves in any form, no text forges a line, nobody's silence holds it up."""

from __future__ import annotations

import array
import base64
import html
import io
import json
import logging
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.logs import Redactor, about, redacted, set_up
from gateway.logs.journal import JournalLines, datagram, field_name, is_journal
from gateway.logs.lines import MOST_CHARS
from gateway.logs.redaction import named_like_secrets
from gateway.logs.streaming import PATIENCE_SECONDS, StreamLines

TOKEN = "123456789:AAF-secret_token-of-the-bot-0123456"
ODD_KEY = 'pass "word"\\with/odd+signs=äöü'
SECRETS = [TOKEN, ODD_KEY]
STYLES = ("plain", "json", "journal")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, shown = root.handlers[:], root.level, logging.raiseExceptions
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    logging.raiseExceptions = shown


def listening(style: str) -> io.StringIO:
    stream = io.StringIO()
    set_up(level="DEBUG", style=style, secrets=SECRETS, env={}, stream=stream)
    return stream


def basic(before: str, secret: str) -> str:
    return base64.b64encode(f"{before}{secret}@rest".encode()).decode()


FORMS = {
    "as it is": TOKEN,
    "in a URL": f"https://x/bot{quote(TOKEN, safe='')}/getMe",
    "in a URL, lower case": f"https://x/bot{TOKEN.replace(':', '%3a')}/getMe",
    "without its id": f"token {TOKEN.partition(':')[2]}",
    "in a URL, in a URL": f"https://x/?to={quote(quote(ODD_KEY, safe=''), safe='')}",
    "in a URL, all in lower case": re.sub(
        "%..", lambda found: found[0].lower(), f"https://x/{quote(ODD_KEY, safe='')}"
    ),
    "in JSON, in JSON": json.dumps({"body": json.dumps({"key": ODD_KEY})}),
    "in JSON of PHP": json.dumps({"key": ODD_KEY}).replace("/", "\\/"),
    "in HTML": f"<p>{html.escape(ODD_KEY)}</p>",
    "in bytes as Python shows them": repr(ODD_KEY.encode()),
    "in hex": TOKEN.encode().hex(),
    "in JSON": json.dumps({"key": ODD_KEY}),
    "in JSON, letters as they are": json.dumps({"key": ODD_KEY}, ensure_ascii=False),
    "as Python shows it": repr({"key": ODD_KEY}),
    "Basic, first place": basic("", TOKEN),
    "Basic, second place": basic("u:", TOKEN),
    "Basic, third place": basic("me:", TOKEN),
}


def is_told(secret_form: str, shown: str) -> bool:
    """Can the secret be had from what is shown?"""
    undone = [shown, shown.replace("\\\\", "\\"), shown.replace('\\"', '"')]
    for run in re.findall(r"[A-Za-z0-9+/]{24,}", shown):
        for start in range(4):
            whole = (len(run) - start) // 4 * 4
            undone.append(base64.b64decode(run[start : start + whole]).decode("latin-1"))
    tail = TOKEN.partition(":")[2]
    return any(text.find(part) >= 0 for text in undone for part in (tail, tail[3:-3], ODD_KEY))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_secret_is_told(style: str, form: str) -> None:
    text = FORMS[form]
    assert is_told(text, text) or form.startswith("in ") or "Python" in form
    stream = listening(style)
    log = logging.getLogger("some.library")
    log.info("sent %s", text, extra={"where": text, "deep": {"list": [text]}})
    half = len(text) // 2
    log.warning("%s%s", text[:half], text[half:])
    try:
        raise ConnectionError(text) from ValueError(text)
    except ConnectionError:
        log.exception("failed")
    shown = stream.getvalue()
    assert shown.count("[secret]") >= 5
    assert not is_told(text, shown)
    assert text not in shown


@given(
    secret=st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=16),
    before=st.text(max_size=5),
    after=st.text(max_size=5),
)
def test_whatever_the_secret_is_it_is_found_in_base64(secret: str, before: str, after: str) -> None:
    whole = base64.b64encode((before + secret + after).encode("utf-8", "replace")).decode()
    assert "[secret]" in Redactor([secret])(whole)


def test_a_secret_where_a_huge_line_is_cut() -> None:
    for style in STYLES:
        stream = listening(style)
        for shift in range(0, len(TOKEN), 5):
            text = "x" * (MOST_CHARS // 2 - shift) + TOKEN + "y" * MOST_CHARS
            logging.getLogger("x").info(text, extra={"field": text, "deep": [text]})
        shown = stream.getvalue()
        assert TOKEN[:16] not in shown
        assert TOKEN[-16:] not in shown


@pytest.mark.parametrize("style", STYLES)
def test_a_huge_line_is_cut_and_says_so(style: str) -> None:
    stream = listening(style)
    logging.getLogger("x").info("a" * 5_000_000, extra={"field": "b" * 5_000_000})
    assert len(stream.getvalue()) < 3 * MOST_CHARS
    assert stream.getvalue().count("characters left out") == 2


FORGED = "hello\n2026-11-30T10:00:00Z INFO    gateway.daemon: stopped\r\x1b[2J\u202e\u2028\x9b1m"


@pytest.mark.parametrize("where", ["message", "field", "error", "logger", "work"])
@pytest.mark.parametrize("style", STYLES)
def test_what_people_write_is_no_line_of_its_own(style: str, where: str) -> None:
    stream = listening(style)
    log = logging.getLogger(FORGED if where == "logger" else "x")
    with about(**({"who": FORGED} if where == "work" else {})):
        if where == "error":
            try:
                raise ValueError(FORGED)
            except ValueError:
                log.exception("failed")
        else:
            extra = {"name_of_user": FORGED} if where == "field" else {}
            log.info("said: %s", FORGED if where == "message" else "x", extra=extra)
    shown = stream.getvalue()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", shown)
    lines = shown.splitlines()
    if style == "json":
        assert len(lines) == 1
        assert json.loads(lines[0])["level"] in ("INFO", "ERROR")
    elif style == "plain":
        assert sum(not line.startswith("    ") for line in lines) == 1
    else:
        assert all(re.match(r"<[36]>(x: |    )", line) or where == "logger" for line in lines)


@pytest.mark.parametrize("style", STYLES)
def test_half_surrogates_are_shown(style: str) -> None:
    stream = io.TextIOWrapper(raw := io.BytesIO(), encoding="utf-8")
    set_up(level="DEBUG", style=style, secrets=[], env={}, stream=stream)
    logging.getLogger("x").info("half \ud83d", extra={"name_of_user": "\udfff"})
    shown = raw.getvalue().decode()
    assert "d83d" in shown
    assert "dfff" in shown


class Nasty:
    def __str__(self) -> str:
        raise RuntimeError(TOKEN)

    __repr__ = __str__


@pytest.mark.parametrize("style", STYLES)
def test_what_can_not_be_put_together_shows_nothing(
    style: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The library would print the arguments to standard error, past everything."""
    stream = listening(style)
    log = logging.getLogger("some.library")
    log.info("only %s", TOKEN, TOKEN)
    log.info("only %d", TOKEN)
    log.info("nasty %s", Nasty(), extra={"field": Nasty()})
    log.info(Nasty())
    log.info("nasty field", extra={"field": Nasty()})
    circle: dict[Any, Any] = {"token": TOKEN, (1, 2): 3}
    circle["self"] = circle
    log.info("circle", extra={"field": circle})
    log.info("after")
    shown = stream.getvalue()
    assert len(shown.splitlines()) == 7
    assert "do not fit" in shown
    said = capfd.readouterr()
    assert TOKEN not in shown + said.out + said.err


def test_variables_that_are_called_like_secrets_are_hidden_as_well() -> None:
    env = {
        "MEM0_API_KEY": "of-some-plugin-0815",
        "my_password": "correct horse battery",
        "ANTHROPIC_API_KEY_FILE": "/etc/posthouse/ANTHROPIC_API_KEY",
        "SECRET": "/run/secrets/posthouse",
        "SOME_TOKEN": "short",
        "KEYBOARD": "us-international",
        "PATH": "/usr/bin:/usr/local/bin",
    }
    assert named_like_secrets(env) == ["of-some-plugin-0815", "correct horse battery"]
    stream = io.StringIO()
    set_up(level="INFO", style="plain", secrets=[], env=env, stream=stream)
    logging.getLogger("x").info("key %s", env["MEM0_API_KEY"])
    assert "0815" not in stream.getvalue()


# --- where it goes ------------------------------------------------------------------------------


def test_a_reader_who_reads_nothing_holds_nobody_up() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        lines = StreamLines(stream)
        begun = time.monotonic()
        for number in range(200):
            lines.handle(logging.makeLogRecord({"msg": f"{number} " + "x" * 3000}))
        assert time.monotonic() - begun < 100 * PATIENCE_SECONDS, "half of what all would wait"
        assert lines.lost > 100
        lost = lines.lost
        got = os.read(reading, 1_000_000)
        lines.handle(logging.makeLogRecord({"msg": "somebody reads again"}))
        got = os.read(reading, 1_000_000)
        os.close(reading)
    assert lines.lost == 0
    assert f"[{lost} lines of the log were lost]\nsomebody reads again\n".encode() in got


def test_a_closed_or_full_output_ends_nothing(tmp_path: Path) -> None:
    for stream in (None, sys.__stdin__, (tmp_path / "x").open("w")):
        lines = StreamLines(stream)
        if stream is not None and stream is not sys.__stdin__:
            stream.close()
        lines.handle(logging.makeLogRecord({"msg": "x"}))
    with Path("/dev/full").open("w") as full:
        lines = StreamLines(full)
        lines.handle(logging.makeLogRecord({"msg": "x"}))
        assert lines.lost == 1


def test_a_process_without_standard_error(tmp_path: Path) -> None:
    code = (
        "import logging, sys\n"
        "from gateway.logs import set_up\n"
        "set_up(level='INFO', style='auto', secrets=[], env={})\n"
        "logging.getLogger('x').error('said to nobody')\n"
        "print('went on')\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec {sys.executable} -c "$CODE" 2>&-'],
        env={"CODE": code, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    assert done.stdout == b"went on\n"


def test_warnings_come_in_as_well() -> None:
    stream = listening("plain")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        logging.captureWarnings(True)
        warnings.warn(f"with {TOKEN}", stacklevel=1)
        logging.captureWarnings(False)
    assert "with [secret]" in stream.getvalue()


# --- the journal --------------------------------------------------------------------------------


class Journal:
    """The other end of the journal's socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(10)

    def entry(self) -> dict[str, str]:
        data, handed, _, _ = self.socket.recvmsg(1_000_000, socket.CMSG_SPACE(4))
        if handed:
            numbers = array.array("i", handed[0][2])
            assert data == b""
            with os.fdopen(numbers[0], "rb") as file:
                file.seek(0)
                data = file.read()
        return dict(self._fields(data))

    def _fields(self, data: bytes) -> Iterator[tuple[str, str]]:
        while data:
            line, _, rest = data.partition(b"\n")
            name, equals, value = line.partition(b"=")
            if not equals:
                (length,) = struct.unpack_from("<Q", rest)
                value, rest = rest[8 : 8 + length], rest[8 + length + 1 :]
            yield name.decode(), value.decode()
            data = rest


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal")
    yield made
    made.socket.close()


def to_journal(tmp_path: Path, stream: io.StringIO) -> logging.Logger:
    """Through the root, which `_as_it_was` puts back."""
    handler = JournalLines(stream, Redactor(SECRETS), tmp_path / "journal")
    logging.getLogger().handlers[:] = [handler]
    return logging.getLogger("gateway.turns")


def test_the_journal_gets_fields(tmp_path: Path, journal: Journal) -> None:
    stream = io.StringIO()
    log = to_journal(tmp_path, stream)
    with about(conversation_id="c_1", turn_id="t_1", platform="telegram"):
        log.warning("turn", extra={"session_id": "s_1", "seconds": 1.5, "url": f"x/{TOKEN}"})
    entry = journal.entry()
    assert entry.pop("CODE_LINE").isdigit()
    assert entry.pop("CODE_FILE").endswith("test_logs.py")
    assert entry == {
        "MESSAGE": "gateway.turns: turn conversation_id=c_1 turn_id=t_1 platform=telegram "
        "session_id=s_1 seconds=1.500 url=x/[secret]",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "posthouse",
        "LOGGER": "gateway.turns",
        "CODE_FUNC": "test_the_journal_gets_fields",
        "CONVERSATION": "c_1",
        "TURN": "t_1",
        "PLATFORM": "telegram",
        "SESSION": "s_1",
        "SECONDS": "1.500",
        "URL": "x/[secret]",
    }
    assert stream.getvalue() == ""


def test_many_lines_and_large_ones_are_one_entry(tmp_path: Path, journal: Journal) -> None:
    log = to_journal(tmp_path, io.StringIO())
    try:
        raise ValueError("PRIORITY=0\nMESSAGE=forged")
    except ValueError:
        log.exception("failed", extra={"name_of_user": "a\nPRIORITY=0\n"})
    entry = journal.entry()
    assert entry["PRIORITY"] == "3"
    assert entry["NAME_OF_USER"] == "a\nPRIORITY=0\n"
    assert "ValueError: PRIORITY=0" in entry["MESSAGE"]
    large = {f"field_{n}": "x" * MOST_CHARS for n in range(40)}  # more than a datagram holds
    log.warning("large", extra=large)
    assert journal.entry()["FIELD_39"] == "x" * MOST_CHARS


def test_a_journal_that_takes_nothing(tmp_path: Path) -> None:
    stream = io.StringIO()
    log = to_journal(tmp_path, stream)
    log.warning("nobody is there")
    assert stream.getvalue() == "<4>gateway.turns: nobody is there\n"
    full = Journal(tmp_path / "journal")
    for _ in range(5000):  # it does not read: its queue is full after some
        log.warning("again")
    assert stream.getvalue().count("again") > 1000
    assert full.entry()["MESSAGE"] == "gateway.turns: again"
    full.socket.close()
    (tmp_path / "journal").unlink()
    anew = Journal(tmp_path / "journal")  # as after its restart
    log.warning("it is back")
    assert anew.entry()["MESSAGE"].endswith("it is back")
    anew.socket.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("seconds", "SECONDS"),
        ("session_id", "SESSION"),
        ("message_id", "X_MESSAGE_ID"),
        ("priority", "X_PRIORITY"),
        ("_uid", "UID"),
        ("9lives", "X_9LIVES"),
        ("ä b=c\n", "B_C_"),
        ("x" * 200, "X" * 60),
    ],
)
def test_names_of_fields(name: str, expected: str) -> None:
    assert field_name(name) == expected


@given(st.text(), st.text(min_size=1))
def test_every_field_name_is_taken(name: str, value: str) -> None:
    assert re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", field_name(name))
    assert datagram([("A", value.replace("\ud800", ""))]).startswith((b"A=", b"A\n"))


def test_the_variable_alone_makes_no_journal(tmp_path: Path) -> None:
    """It is handed on to those whose standard error goes elsewhere."""
    with (tmp_path / "log").open("w") as file:
        found = os.fstat(file.fileno())
        assert is_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}, file)
        assert not is_journal({"JOURNAL_STREAM": "8:1"}, file)
        assert not is_journal({}, file)


def test_lines_of_threads_do_not_mix() -> None:
    reading, writing = os.pipe()
    got: list[bytes] = []

    def read() -> None:
        while piece := os.read(reading, 65536):
            got.append(piece)

    reader = threading.Thread(target=read)
    reader.start()
    with os.fdopen(writing, "w") as stream:
        lines = StreamLines(stream)
        said = [
            threading.Thread(
                target=lambda c=c: [
                    lines.handle(logging.makeLogRecord({"msg": c * 9000})) for _ in range(20)
                ]
            )
            for c in "abc"
        ]
        for thread in said:
            thread.start()
        for thread in said:
            thread.join()
    reader.join()
    os.close(reading)
    found = b"".join(got).decode().splitlines()
    assert len(found) + lines.lost >= 60
    assert all(re.fullmatch(r"a{9000}|b{9000}|c{9000}|\[.*lost\]", line) for line in found)


def test_set_up_again_as_at_a_reload(tmp_path: Path) -> None:
    """The old lines end, new secrets are known, and whoever else listens stays."""
    listener = logging.Handler()
    heard: list[logging.LogRecord] = []
    listener.emit = heard.append  # type: ignore[method-assign]
    first, second = io.StringIO(), io.StringIO()
    set_up(level="INFO", style="plain", secrets=["the-old-secret"], env={}, stream=first)
    logging.getLogger().addHandler(listener)
    hidden = ["the-old-secret", "the-new-secret"]
    set_up(level="INFO", style="json", secrets=hidden, env={}, stream=second)
    logging.getLogger("x").info("the-old-secret the-new-secret")
    assert first.getvalue() == ""
    assert json.loads(second.getvalue())["message"] == "[secret] [secret]"
    assert len(heard) == 1
    assert redacted("the-new-secret") == "[secret]"
