"""What an address of the web means, and which are asked for at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.tools.web import WebRefusal
from gateway.fetching.named import NamedHosts
from gateway.fetching.targets import check_reach, next_target, target_of

NOBODY = NamedHosts()


@pytest.mark.parametrize(
    ("text", "url", "host", "port"),
    [
        ("https://example.org", "https://example.org", "example.org", 443),
        (" http://Example.ORG./a?b=c#d ", "http://example.org./a?b=c", "example.org", 80),
        ("https://exämple.org/ä", "https://xn--exmple-cua.org/%C3%A4", "xn--exmple-cua.org", 443),
        ("https://example.org:8443/", "https://example.org:8443/", "example.org", 8443),
        ("http://[2606:4700::0:1]/", "http://[2606:4700::1]/", "2606:4700::1", 80),
        ("http://①②⑦.⓪.⓪.①/", "http://127.0.0.1/", "127.0.0.1", 80),
    ],
)
def test_what_an_address_means(text: str, url: str, host: str, port: int) -> None:
    found = target_of(text, NOBODY)
    assert (str(found.url), found.host, found.port) == (url, host, port)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "only addresses"),
        ("example.org/page", "https://"),
        ("ftp://example.org/", "https://"),
        ("file:///etc/passwd", "https://"),
        ("http:///x", "no host"),
        ("http://example.org:22/", "port 22"),
        ("http://example.org:443/", "port 443"),
        ("http://example.org:99999/", "no web address"),
        ("http://example.org\\@127.0.0.1/", "no web address"),
        ("http://exa mple.org/", "no web address"),
        ("http://example.org/\r\nHost: x", "no web address"),
        ("http://example.org/\u202e", "no web address"),
        ("http://[x]@", "no web address"),
        ("http://[x]y@?", "no web address"),
        ("http://a..b/", "usual form"),
        ("http://2130706433/", "usual form"),
        ("http://0x7f.0.0.1/", "usual form"),
        ("http://0177.0.0.1/", "usual form"),
        ("http://127.1/", "usual form"),
        ("http://0/", "usual form"),
        ("http://example.0x7f/", "usual form"),
        ("http://[fe80::1%25eth0]/", "usual form"),
        ("https://x.org/" + "a" * 5000, "no web address"),
    ],
)
def test_what_is_not_asked_for(text: str, why: str) -> None:
    with pytest.raises(WebRefusal, match=why):
        target_of(text, NOBODY)


@pytest.mark.parametrize("user", ["ada:hunter2@", "ada@", ":hunter2@", "a%40b:hunter2@"])
def test_a_password_is_neither_sent_nor_told(user: str) -> None:
    with pytest.raises(WebRefusal, match="name or password") as told:
        target_of(f"https://{user}example.org/", NOBODY)
    assert "hunter2" not in str(told.value)


@given(st.text(max_size=60) | st.text(max_size=40).map("http://{}".format))
def test_any_text_is_an_address_or_is_refused(text: str) -> None:
    try:
        found = target_of(text, NOBODY)
    except WebRefusal:
        return
    assert found.url.scheme in ("http", "https")
    assert found.host.isascii()
    assert str(found.url).isascii()
    assert found.url.raw_user is None


@pytest.mark.parametrize(
    ("addresses", "why"),
    [
        (["127.0.0.1"], "private"),
        (["1.1.1.1", "10.0.0.1"], "private"),
        (["1.1.1.1", "::ffff:10.0.0.1"], "private"),
        (["169.254.169.254"], "never"),
        (["1.1.1.1", "fe80::1%lo"], "never"),
        (["nonsense"], "never"),
    ],
)
def test_one_bad_address_of_a_host_is_enough(addresses: list[str], why: str) -> None:
    with pytest.raises(WebRefusal, match=why):
        check_reach(target_of("https://example.org", NOBODY), addresses)
    check_reach(target_of("https://example.org", NOBODY), ["1.1.1.1", "2606:4700::1111"])


def test_a_named_host_may_be_private_and_only_at_its_port() -> None:
    named = NamedHosts.parsed(["wiki.lan", "10.0.0.5:8099", "[FD00::0:1]:3000", "cloud.lan"])
    check_reach(target_of("http://WIKI.lan./x", named), ["10.1.1.1"])
    check_reach(target_of("https://wiki.lan/x", named), ["fd00::7"])
    check_reach(target_of("http://10.0.0.5:8099", named), ["10.0.0.5"])
    check_reach(target_of("http://[fd00::1]:3000", named), ["fd00::1"])
    for other in ("http://wiki.lan:8080", "http://10.0.0.5/", "http://x.wiki.lan"):
        with pytest.raises(WebRefusal, match="private"):
            check_reach(target_of(other, named), ["10.0.0.5"])
    with pytest.raises(WebRefusal, match="never"):  # the metadata of a cloud, named or not
        check_reach(target_of("http://cloud.lan", named), ["169.254.169.254"])


@pytest.mark.parametrize(
    "entry", ["", "http://x", "a b", "::1", "x:0", "x:99999", "u@x", "x/y", "[::1", "x:y"]
)
def test_what_is_no_host_is_not_named(entry: str) -> None:
    with pytest.raises(ValueError, match="no host"):
        NamedHosts.parsed([entry])


def test_where_a_page_may_send_on_to() -> None:
    here = target_of("https://example.org/a/b?c", NOBODY)
    assert str(next_target(here, "../d", NOBODY).url) == "https://example.org/d"
    assert str(next_target(here, "//other.org/", NOBODY).url) == "https://other.org/"
    plain = target_of("http://example.org/", NOBODY)
    assert next_target(plain, "https://example.org/", NOBODY).port == 443
    for location, why in (
        ("http://example.org/", "unencrypted"),
        ("file:///etc/passwd", "https://"),
        ("https://u:p@example.org/", "name or password"),
        ("https://example.org:22/", "port 22"),
        ("http://[", "no web address"),
        ("javascript:alert(1)", "https://|no host|no web address"),
    ):
        with pytest.raises(WebRefusal, match=why):
            next_target(here, location, NOBODY)
