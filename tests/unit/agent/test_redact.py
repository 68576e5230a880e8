"""Secrets are taken out, names and harmless words stay."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.redact import REDACTED, redact_sensitive_text

_BODY = "Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4zAbCdEfGh"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("ANTHROPIC_API_KEY=sk-ant-api03-XXXX", "XXXX"),
        (f"use sk-ant-api03-{_BODY} please", _BODY),
        ("deploy key sk-ant-xxx", "sk-ant-xxx"),
        (f"sk-proj-{_BODY}", _BODY),
        (f"git push https://ghp_{_BODY}@github.com/a/b", _BODY),
        (f"github_pat_{_BODY}", _BODY),
        (f"glpat-{_BODY}", _BODY),
        ("xoxb-123456789012-abcdefghijkl", "abcdefghijkl"),
        ("id AKIAIOSFODNN7EXAMPLE ok", "IOSFODNN7"),
        ("AIza" + "B" * 35, "BBBB"),
        ("sk_live_" + "4" * 24, "4444"),
        (f"hf_{_BODY}", _BODY),
        (f"npm_{_BODY}", _BODY),
        ("SG." + "a" * 22 + "." + "b" * 43, "bbbb"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJzdWIi"),
        ("bot 123456789:AAEhBP0av28FCbz7XCq3xJ9VrS9zjQABCDE ok", "BP0av28"),
        ("N" + "a" * 23 + ".abcdef." + "b" * 30, "bbbb"),
        ("https://discord.com/api/webhooks/123/abcdefghijklmnopqrst", "abcdefghij"),
        ("see https://user:pw@h/", "pw@"),
        ("postgres://u:p@ss@host/db", "p@ss"),
        ('curl -H "Authorization: Bearer abcdefgh1234"', "abcdefgh"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpw"),
        ("Cookie: sid=abcdef123456", "abcdef"),
        ("https://x.example/cb?access_token=abcdef123456&x=1", "abcdef"),
        ('{"api_key": "abc123def", "n": 3}', "abc123def"),
        ('{\\"password\\": \\"hunter22\\"}', "hunter22"),
        ("password: hunter22", "hunter22"),
        ("my password is hunter22!", "hunter22"),
        ("mysql --password hunter22", "hunter22"),
        ("密码：abcdef12", "abcdef12"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r", "b3BlbnNz"),
        ("a -----BEGIN PRIVATE KEY-----! MII -----END PRIVATE KEY-----", "MII"),
        ("İİİ password: hunter22", "hunter22"),
        ("paſſword: hunter22", "hunter22"),
        ("--client-secret hunter22", "hunter22"),
        ('{"log": "x\\nauthorization: bearer abcdefgh1234"}', "abcdefgh1234"),
        ("https://h/?x-amz-signature=abcdef123456", "abcdef"),
        ("https://h/?mykey=abcdef123456", "abcdef"),
    ],
)
def test_secrets_go_and_a_placeholder_stands_for_them(text: str, secret: str) -> None:
    redacted = redact_sensitive_text(text)
    assert secret in text
    assert secret not in redacted
    assert REDACTED in redacted


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=4096 and tokens: 12",
        "the key point: everything is fine",
        "token: string",
        "primary_key=user_id",
        "/srv/app/main.py:120 https://example.org/a?page=2",
        "a password is required here",
        "export TOKEN=$TOKEN",
        "commit 3f2a9c1d8e7b6a5f4e3d2c1b0a9f8e7d6c5b4a39",
        "monkey: banana123 and keyboard=qwertz99",
        "see https://example.org/?page=keyboard&sort=token_count",
        "10.0.0.1. and www.example.org.internal.example-of-a-long-name.org",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact_sensitive_text(text) == text


@given(
    st.text(alphabet=st.sampled_from("abcXYZ019:=_-./@\"'\\ \n{}tokenkey password"), max_size=200)
)
def test_doing_it_twice_changes_nothing_more(text: str) -> None:
    once = redact_sensitive_text(text)
    assert redact_sensitive_text(once) == once


def test_every_character_keeps_its_place_in_lower_case() -> None:
    """Secrets are found in the text in lower case and cut out of the original."""
    for start in range(0, 0x110000, 0x1000):
        block = "".join(map(chr, range(start, start + 0x1000)))
        secret = f"{block} password=hunter22"
        assert redact_sensitive_text(secret).endswith(f"password={REDACTED}")


@pytest.mark.parametrize("before", ["\n", "\t", "\r\n", "\u2028", "密钥", "é"])
@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-canary0123456789",
        "ghp_canary0123456789abcdefghij01234567",
        "AKIACANARY0123456789",
        "glpat-canary0123456789abcd",
        "eyJcanaryJhbGciOi.eyJzdWIiOiI.abcdefgh123",
    ],
)
def test_what_json_writes_for_a_line_break_hides_no_key(
    secret: str, before: str, escaped: bool
) -> None:
    given = json.dumps({"content": f"line{before}{secret}{before}line"}, ensure_ascii=escaped)
    clean = redact_sensitive_text(given)
    assert "canary" not in clean.lower()
    assert "[REDACTED]" in clean


@pytest.mark.parametrize(
    "text",
    [
        "token " * 20_000,
        "eyJ" * 30_000,
        "a://" * 20_000,
        "-----BEGIN PRIVATE KEY-----" * 3000,
        "a_" * 50_000 + "token",
        'password="' * 9000,
        "M" * 100_000,
        "-----BEGIN PRIVATE KEY-----!" * 3500,
        "key=" * 25_000,
        "?key=&token=" * 8000,
        ":A" * 50_000,
        "123456:A" * 12_000,
        "a." * 50_000,
        "." * 100_000,
        "--" * 50_000,
        "\"'" * 50_000,
        "\\" * 100_000,
        "密码" * 50_000 + "：",
        ("authorization" + " " * 5000) * 20,
        "token_abcdefghijkl" * 5500,
        ('"password": "' + "x\\" * 490) * 100,
    ],
)
def test_no_text_takes_long(text: str) -> None:
    started = time.process_time()
    redact_sensitive_text(text)
    assert time.process_time() - started < 3.0


def test_options_of_plugins_make_nothing_more_lenient() -> None:
    text = "TOKEN=sk-ant-REDACTED"
    plain = redact_sensitive_text(text)
    assert plain != text
    assert redact_sensitive_text(text, force=False, code_file=True, file_read=True) == plain
