"""Web servers: what is bounded, what is never reached, what is never shown."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from heldout.core.web import BadAddress, Patience, Unanswered, WebClient, is_public, masked
from tests.core.lying_server import (
    DATA,
    ENOUGH,
    MOODS,
    SIZE,
    Asked,
    Internet,
    LyingServer,
    Mood,
    honest,
    internet,
    liar,
)

__all__ = ["internet", "liar"]
PUBLIC = "93.184.215.14"
METADATA = "169.254.169.254"


def client(
    named: str, *, attempts: int = 3, silence: float = 30.0
) -> tuple[WebClient, list[float]]:
    pauses: list[float] = []
    patience = Patience(attempts=attempts, silence=silence, sleep=pauses.append)
    return WebClient(named, most=SIZE, patience=patience), pauses


def to(target: str) -> Mood:
    """A server that redirects to ``target``."""
    return lambda ask: ask.head("302 Found", Location=target, Content_Length=0)


@pytest.mark.usefixtures("internet")
def test_an_honest_server_is_read(liar: LyingServer) -> None:
    web, pauses = client(liar.url())
    with web:
        assert web.get(liar.url()) == (200, DATA)
    assert len(liar.requests) == 1 and not pauses


@pytest.mark.parametrize("mood", MOODS, ids=lambda mood: mood.__name__)
def test_no_mood_of_a_server_makes_a_file_endless(
    liar: LyingServer, internet: Internet, mood: Mood
) -> None:
    liar.mood = mood
    web, pauses = client(liar.url(), silence=0.2)
    try:
        _, data = web.get(liar.url())
    except (BadAddress, Unanswered):
        data = b""
    web.close()
    assert len(data) <= SIZE
    assert len(liar.requests) <= 6  # three attempts, or five redirects
    assert liar.sent < ENOUGH // 2  # what is read, and what lies in the buffers of the system
    assert all(pause <= 60 for pause in pauses)
    assert set(internet.reached) == {("127.0.0.1", liar.port)}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        METADATA,
        "[fe80::1]",
        "[fd00:ec2::254]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[::]",
        "224.0.0.1",
        "inside.test",
        "both.test",
    ],
)
def test_a_redirect_to_a_private_address_is_not_followed(
    liar: LyingServer, internet: Internet, host: str
) -> None:
    secret = LyingServer()
    internet.public = {PUBLIC}
    internet.names = {
        "open.test": [[PUBLIC]],
        "inside.test": [["10.0.0.5"]],
        "both.test": [["127.0.0.1", "::1"]],
    }
    liar.mood = to(secret.url(host))
    for named in ("open.test", "127.0.0.1"):  # also a private server may not lead elsewhere
        web, _ = client(liar.url(named))
        with web, pytest.raises(BadAddress, match="private address"):
            web.get(liar.url(named))
    secret.close()
    assert not secret.requests
    assert set(internet.reached) == {(PUBLIC, liar.port), ("127.0.0.1", liar.port)}


def test_a_redirect_to_a_public_address_is_followed(liar: LyingServer, internet: Internet) -> None:
    other = LyingServer()
    internet.public = {PUBLIC, "93.184.215.15"}
    internet.names = {
        "open.test": [[PUBLIC]],
        # One of its addresses is private: only the other is asked.
        "mixed.test": [["10.0.0.5", "93.184.215.15"]],
    }
    liar.mood = to(other.url("mixed.test"))
    named = liar.url("me:secret@open.test")
    web, _ = client(named)
    with web:
        assert web.get(named) == (200, DATA)
    other.close()
    assert other.requests[0].headers["host"] == f"mixed.test:{other.port}"
    assert "authorization" in liar.requests[0].headers  # and not where it leads
    assert "authorization" not in other.requests[0].headers
    assert internet.reached == [(PUBLIC, liar.port), ("93.184.215.15", other.port)]


def test_a_private_server_may_lead_to_itself(liar: LyingServer, internet: Internet) -> None:
    def mood(ask: Asked) -> None:
        to(liar.url("nas.test", "new"))(ask) if ask.path == "/set.npy" else honest(ask)

    liar.mood = mood
    internet.names = {"nas.test": [["127.0.0.1"]]}
    web, _ = client(liar.url("nas.test"))
    with web:
        assert web.get(liar.url("nas.test")) == (200, DATA)
        with pytest.raises(BadAddress, match=r"127\.0\.0\.1, which is a private address"):
            web.get(liar.url("127.0.0.1"))  # the same machine by a name that nobody gave


def test_a_private_server_may_lead_to_itself_encrypted(
    liar: LyingServer, internet: Internet
) -> None:
    internet.names = {"nas.test": [["127.0.0.1"]]}
    with socket.create_server(("127.0.0.1", 0)) as closing:
        internet.ports = {80: liar.port, 443: closing.getsockname()[1]}
    for target, reached in (
        ("https://nas.test/a", [80, 443]),
        ("https://nas.test:8443/a", [80]),
        ("http://nas.test:443/a", [80, 443]),
    ):
        internet.reached.clear()
        liar.mood = to(target)
        web, _ = client("http://nas.test/a", attempts=1)
        with web, pytest.raises((BadAddress, Unanswered)):
            web.get("http://nas.test/a")
        assert internet.reached == [("127.0.0.1", port) for port in reached]


def test_a_name_that_becomes_private_is_not_followed_there(
    liar: LyingServer, internet: Internet
) -> None:
    """Whoever answers for a name may change the answer between the check and the connection."""
    internet.public = {PUBLIC}
    internet.names = {"rebinds.test": [[PUBLIC], ["127.0.0.1"]]}
    liar.mood = lambda ask: ask.head(Content_Length=SIZE)  # closes: the next attempt looks it up
    web, _ = client(liar.url("rebinds.test"))
    with web, pytest.raises(BadAddress, match="private address"):
        web.get(liar.url("rebinds.test"))
    assert internet.reached == [(PUBLIC, liar.port)]


def test_the_next_address_of_a_name_is_tried(liar: LyingServer, internet: Internet) -> None:
    internet.public = {PUBLIC}
    internet.names = {"two.test": [["93.184.215.15", PUBLIC]]}
    web, _ = client(liar.url("two.test"))
    with web:
        assert web.get(liar.url("two.test"))[0] == 200
    assert internet.reached == [("93.184.215.15", liar.port), (PUBLIC, liar.port)]


@pytest.mark.parametrize("target", ["ftp://open.test/a", "file:///etc/passwd", "http:///a"])
def test_a_redirect_to_what_is_not_the_web(
    liar: LyingServer, internet: Internet, target: str
) -> None:
    liar.mood = to(target)
    web, _ = client(liar.url())
    with web, pytest.raises((BadAddress, Unanswered)):
        web.get(liar.url())
    assert set(internet.reached) == {("127.0.0.1", liar.port)}


def test_addresses_that_are_none(internet: Internet) -> None:
    for url in ("http://127.0.0.1:secret/x", "http:///x", f"http://{'a' * 70}.test/x"):
        with pytest.raises((BadAddress, Unanswered)) as caught, client(url)[0] as web:
            web.get(url)
        assert "secret" not in str(caught.value)
    assert not internet.reached


def test_a_proxy_is_used_but_not_to_reach_what_is_private(
    liar: LyingServer, internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://me:word@127.0.0.1:{liar.port}")
    web, _ = client("http://open.test/set.npy")
    with web:
        # The name is known to the proxy alone, which answers in its place.
        assert web.get("http://open.test/set.npy") == (200, DATA)
        assert liar.requests[0].path == "http://open.test/set.npy"
        assert "proxy-authorization" in liar.requests[0].headers
        for host in (METADATA, "localhost"):
            with pytest.raises(BadAddress, match="private address"):
                web.get(f"http://{host}/set.npy")
    assert len(liar.requests) == 1
    monkeypatch.setenv("no_proxy", "open.test")
    web, _ = client("http://open.test/set.npy")
    with web, pytest.raises(Unanswered, match="not known"):
        web.get("http://open.test/set.npy")
    assert internet.reached == [("127.0.0.1", liar.port)]


def test_encryption_is_for_the_name_not_for_the_address(
    internet: Internet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is of ``mirror.test``; the connection goes to the address that was checked."""
    keys = Path(__file__).with_name("mirror.test.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(keys))
    internet.names = {name: [["127.0.0.1"]] for name in ("mirror.test", "other.test")}
    seen: list[str | None] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys)
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def serve() -> None:
        for location in ("", "", f"Location: http://mirror.test:{port}/a\r\n"):
            plain, _ = listening.accept()
            try:
                with context.wrap_socket(plain, server_side=True) as connection:
                    connection.recv(4096)
                    status = "302 Found" if location else "200 OK"
                    answer = f"HTTP/1.1 {status}\r\n{location}Content-Length: 4\r\n\r\ndata"
                    connection.sendall(answer.encode())
            except OSError:
                plain.close()

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    named = f"https://mirror.test:{port}/a"
    web, _ = client(named, attempts=1)
    with web:
        assert web.get(named) == (200, b"data")
    elsewhere = f"https://other.test:{port}/a"
    web, _ = client(elsewhere, attempts=1)
    with web, pytest.raises(Unanswered, match="CERTIFICATE_VERIFY_FAILED"):
        web.get(elsewhere)
    web, _ = client(named, attempts=1)
    with web, pytest.raises(BadAddress, match="without encryption"):
        web.get(named)
    serving.join(5)
    listening.close()
    assert seen == ["mirror.test", "other.test", "mirror.test"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/a.zip", "https://host/a.zip"),
        ("http://me:secret@host:80/a.zip", "http://***@host:80/a.zip"),
        ("http://secret@host/a@b.zip", "http://***@host/a@b.zip"),
        ("http://me:sec@ret@host/a", "http://***@host/a"),
        ("https://host/a.zip?sig=secret#secret", "https://host/a.zip?***"),
        ("http://me:secret/word@host/a", "an address that is not valid"),
        ("me:secret@host/a", "an address that is not valid"),
        ("http://[secret@host/a", "an address that is not valid"),
    ],
)
def test_addresses_are_shown_without_secrets(url: str, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700:4700::1111", True),
        ("64:ff9b::808:808", True),
        ("64:ff9b::7f00:1", False),
        ("2002:808:808::", True),
        ("::7f00:1", False),
        ("fec0::1", False),
        ("fe80::1%eth0", False),
        ("ff0e::1", False),
        ("240.0.0.1", False),
        ("192.0.2.1", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public
