"""`fetch_url` over TLS: the name in the address is what the certificate is for, pinned or not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from agent.tools.web import WebRefusal
from gateway.fetching.door import WebDoor
from gateway.fetching.named import NamedHosts
from tests.fakes.web_site import page


def _certificate(path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "site.lan")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(datetime(2020, 1, 1))  # noqa: DTZ001 - taken as UTC
        .not_valid_after(datetime(2090, 1, 1))  # noqa: DTZ001
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("site.lan")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(
        made.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[int]:
    _certificate(tmp_path / "site.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "site.pem")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(page(b"hello", "text/plain"))
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield int(server.sockets[0].getsockname()[1])


async def _local(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


async def test_a_certificate_that_nobody_vouches_for(port: int) -> None:
    door = WebDoor(NamedHosts.parsed([f"site.lan:{port}"]), look_up=_local)
    with pytest.raises(WebRefusal, match=r"certificate of site\.lan is not to be trusted"):
        await door.get(f"https://site.lan:{port}/")
    with pytest.raises(WebRefusal, match=r"can not be understood|broke"):
        await door.get(f"http://site.lan:{port}/")


async def test_it_is_for_the_name_in_the_address(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import aiohttp.connector

    trusting = ssl.create_default_context(cafile=tmp_path / "site.pem")
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", trusting)
    named = NamedHosts.parsed([f"site.lan:{port}", f"other.lan:{port}"])
    door = WebDoor(named, look_up=_local)
    assert (await door.get(f"https://site.lan:{port}/")).data == b"hello"
    with pytest.raises(WebRefusal, match=r"other\.lan is not to be trusted: Hostname mismatch"):
        await door.get(f"https://other.lan:{port}/")
