"""Web servers asked in bounded time and bytes; nothing private is reached that was not named.

Loads the HTTP client, so import it where it is used.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from heldout import __version__

_RETRY = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = 5
_LONGEST_PAUSE = 60.0
_HEAD = 1 << 18  # bytes that headers may have
_PACE = 1024  # bytes that make up for a second of waiting
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

_FAILURES = (
    httpx.HTTPError,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.TimeoutException,
)

Origin: TypeAlias = tuple[str, int]
T = TypeVar("T")


class BadAddress(Exception):
    """This address does not give what was asked for; ``str`` says why in a few words."""


class Unanswered(Exception):
    """This attempt failed in a way that may pass; ``wait`` is what the server asked for."""

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How often to try one address, and how long to wait for it.

    ``attempts`` in a row without progress end it; ``pause`` seconds come before the second,
    doubled for each further one. An attempt ends after ``silence`` seconds of waiting for the
    server, less one for every KiB that it sent.
    """

    attempts: int = 5
    pause: float = 1.0
    silence: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def rest(self, failures: int, error: Unanswered) -> None:
        """Wait before the next attempt; after the last one the error is raised instead."""
        if failures >= self.attempts:
            raise error
        self.sleep(min(max(error.wait, self.pause * 2 ** (failures - 1)), _LONGEST_PAUSE))


def masked(url: str) -> str:
    """An address as it may be printed and stored: without user, password and query.

    >>> masked("https://me:secret@host/a.zip?token=1")
    'https://***@host/a.zip?***'
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises where a part of a password may stand in its place
    except ValueError:
        parts = urlsplit("")
    if not parts.netloc:
        return "an address that is not valid"
    user, _, host = parts.netloc.rpartition("@")
    place = parts._replace(
        netloc=f"***@{host}" if user else host, query="***" if parts.query else "", fragment=""
    )
    return place.geturl()


def is_public(address: str) -> bool:
    """Whether an IP address, or the one that it wraps, is of the public internet.

    >>> is_public("93.184.215.14"), is_public("169.254.169.254"), is_public("::ffff:10.0.0.1")
    (True, False, False)
    """
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.is_site_local:
            return False
        inner = ip.ipv4_mapped or ip.sixtofour
        ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else inner or ip
    return ip.is_global and not (ip.is_multicast or ip.is_reserved)


class WebClient:
    """Asks one address, and what it redirects to, for the bytes of files.

    ``named``  an address that the user named, or none: its host may be private. What it redirects
               to, and a name that led to a public address before, may not
    ``most``   bytes that a file may have

    Names are resolved here and the address that was checked is the one connected to, so what a
    name server answers next changes nothing. Proxies and certificates come from the environment; a
    proxy resolves names by itself, but is not asked for what is known here to be private.
    """

    def __init__(self, named: str, *, most: int, patience: Patience) -> None:
        self.most, self.patience = most, patience
        guard = _Guard(_origin(_parsed(named)), patience.silence)
        self._client = httpx.Client(
            transport=_Transport(guard, most + most // 8 + _HEAD),  # chunks have frames
            timeout=None,  # the guard's connections have their own
            headers={"User-Agent": f"heldout/{__version__}", "Accept-Encoding": "identity"},
        )

    @contextmanager
    def answer(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """The answer to GET, its body not read yet: take it with ``iter_raw``."""
        try:
            response = self._followed(url, headers)
            try:
                status = response.status_code
                if status in _RETRY:
                    wait = response.headers.get("retry-after", "")
                    raise Unanswered(
                        f"answers {status} {response.reason_phrase}",
                        wait=float(wait) if wait.isdecimal() else 0.0,
                    )
                yield response
            finally:
                response.close()
        except _FAILURES as error:
            raise Unanswered(" ".join(str(error).split()) or type(error).__name__) from None

    def get(self, url: str) -> tuple[int, bytes]:
        """The status, and the file where it is 200, after as many attempts as it takes."""
        return self.asked(url, lambda status, data: (status, data))

    def asked(self, url: str, read: Callable[[int, bytes], T]) -> T:
        """What ``read`` makes of :meth:`get`'s answer; ``Unanswered`` from it is one more attempt."""
        failures = 0
        while True:
            try:
                with self.answer(url) as answer:
                    size = answer.headers.get("content-length", "")
                    got, data = int(size) if size.isdecimal() else 0, bytearray()
                    for chunk in answer.iter_raw() if answer.status_code == 200 else ():
                        data += chunk
                        got = max(got, len(data))
                        if got > self.most:
                            raise BadAddress(f"has {got:,} bytes or more, which is too many")
                return read(answer.status_code, bytes(data))
            except Unanswered as error:
                failures += 1
                self.patience.rest(failures, error)

    def _followed(self, url: str, headers: Mapping[str, str] | None) -> httpx.Response:
        request = self._client.build_request("GET", _parsed(url), headers=headers)
        for _ in range(_REDIRECTS + 1):
            if request.url.scheme not in ("http", "https") or not request.url.host:
                raise BadAddress("leads to what is not a web address")
            response = self._client.send(request, stream=True)
            if response.next_request is None:
                return response
            response.close()  # without reading it
            if (request.url.scheme, response.next_request.url.scheme) == ("https", "http"):
                raise BadAddress("redirects to an address without encryption")
            request = response.next_request
        raise BadAddress(f"redirects more than {_REDIRECTS} times")

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _parsed(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except httpx.InvalidURL:  # its text may hold a part of a password
        raise BadAddress("is not an address") from None


def _origin(url: httpx.URL) -> Origin:
    """Host and port of an address, as connections name them."""
    return url.raw_host.decode("ascii"), url.port or (443 if url.scheme == "https" else 80)


class _Guard(httpcore.NetworkBackend):
    """Connects to public addresses, and to the named origin if it was private from the first."""

    def __init__(self, named: Origin, silence: float) -> None:
        host, port = named
        self._named = {named, (host, 443 if port == 80 else port)}  # the same host, encrypted
        self._is_private: bool | None = None
        self.silence = silence
        self._sockets = httpcore.SyncBackend()

    def addresses(self, host: str, port: int) -> list[str]:
        """The IP addresses of a host that may be connected to; ``BadAddress`` where there are none."""
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from None
        found = list(dict.fromkeys(str(answer[4][0]) for answer in answers))
        public = [address for address in found if is_public(address)]
        if (host, port) in self._named:
            if self._is_private is None:
                self._is_private = not public
            if self._is_private:
                return found
        if not public:
            raise BadAddress(f"leads to {found[0]}, which is a private address")
        return public

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        """A connection to the first address of the host that answers."""
        found = self.addresses(host, port)[:4]
        for address in found:
            try:
                stream = self._sockets.connect_tcp(
                    address, port, self.silence / len(found), local_address, socket_options
                )
                return _Bounded(stream, self.silence)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed


class _Bounded(httpcore.NetworkStream):
    """A connection on which no answer is endless, neither in bytes nor by a byte now and then.

    ``most`` is what an answer may have: at first its headers alone, more once these are there.
    """

    def __init__(self, stream: httpcore.NetworkStream, silence: float) -> None:
        self._stream, self._silence = stream, silence
        self.most, self._got, self._waited = _HEAD, 0, 0.0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, waiting for it only as long as the server has not used up its time."""
        start = time.monotonic()
        data = self._stream.read(max_bytes, self._silence - self._waited)
        self._waited += time.monotonic() - start - len(data) / _PACE
        self._waited = max(self._waited, 0.0)
        self._got += len(data)
        if self._waited >= self._silence:
            raise httpcore.ReadTimeout("sends too slowly")
        if self._got > self.most:
            raise BadAddress(f"sends more than {self.most:,} bytes")
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send a request, whose answer is counted anew."""
        self.most, self._got, self._waited = _HEAD, 0, 0.0
        self._stream.write(buffer, self._silence)

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """The same connection, encrypted."""
        stream = self._stream.start_tls(ssl_context, server_hostname, self._silence)
        return _Bounded(stream, self._silence)

    def get_extra_info(self, info: str) -> Any:
        """What is known of the socket."""
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        """Close the socket."""
        self._stream.close()


class _Transport(httpx.BaseTransport):
    """httpx on the connections of a guard, which its own transport cannot be given."""

    def __init__(self, guard: _Guard, most: int) -> None:
        self._guard, self._most = guard, most
        self._pools: dict[str, httpcore.ConnectionPool] = {}
        self._lock = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; the errors are those of httpcore."""
        url = request.url
        asked = httpcore.Request(
            request.method,
            httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
        )
        answer = self._pool(url).handle_request(asked)
        answer.extensions["network_stream"].most = self._most
        return httpx.Response(
            answer.status,
            headers=answer.headers,
            stream=_Body(answer),
            extensions=answer.extensions,
        )

    def _pool(self, url: httpx.URL) -> httpcore.ConnectionPool:
        """The connections that lead to an address: straight, or through the proxy for it."""
        known = getproxies()
        proxy = known.get(url.scheme) or known.get("all") or ""
        if proxy_bypass(url.host):
            proxy = ""
        if proxy:
            with suppress(httpcore.ConnectError):  # a name that only the proxy knows
                self._guard.addresses(*_origin(url))
        with self._lock:
            if proxy not in self._pools:
                self._pools[proxy] = self._connections(proxy)
            return self._pools[proxy]

    def _connections(self, proxy: str) -> httpcore.ConnectionPool:
        certificates = httpx.create_ssl_context()
        if not proxy:
            return httpcore.ConnectionPool(
                certificates, max_connections=None, network_backend=self._guard
            )
        place = httpx.URL(proxy if "://" in proxy else f"http://{proxy}")
        if place.scheme not in ("http", "https"):
            raise BadAddress(f"would be asked through the {place.scheme} proxy of the environment")
        return httpcore.HTTPProxy(
            str(place.copy_with(userinfo=b"")),
            (place.username, place.password) if place.userinfo else None,
            ssl_context=certificates,
            max_connections=None,
            network_backend=_Guard(_origin(place), self._guard.silence),
        )

    def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            pool.close()


class _Body(httpx.SyncByteStream):
    """The body of an answer."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        yield from self._answer.iter_stream()

    def close(self) -> None:
        """Give the connection back."""
        self._answer.close()
