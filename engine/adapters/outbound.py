"""HTTP to addresses that a user gave: to the public internet and to what the operator allows, and nowhere else.

A name is resolved, each address is looked at, and the very address that was looked at is connected to: a name that
resolves to something else a moment later (DNS rebinding) gains nothing. Redirects are not followed, proxies of the
environment are not used.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpcore

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class AddressRefused(ValueError):
    """The URL leads to an address that nobody allowed, or is no URL that we go to."""


class Unreachable(ConnectionError):
    """Nobody answered in time, or the connection broke: try again later."""


class TooMuch(ValueError):
    """The answer is larger than was agreed."""


class Outbound:
    """Sends requests, each over a connection of its own. `allowed` are the networks, besides the public internet, that
    the operator lets us reach."""

    def __init__(self, allowed: Sequence[str] = ()) -> None:
        self._allowed = [ipaddress.ip_network(network) for network in allowed]

    def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float, most_bytes: int
    ) -> tuple[int, bytes]:
        """Status and body of the answer, all of it within `timeout_s`, however slowly it drips in.

        Raises AddressRefused, Unreachable, and TooMuch for an answer of more than `most_bytes`.
        """
        check_url(url)
        backend = _Guarded(self._allowed, time.monotonic() + timeout_s)
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), timeout_s)
        try:
            with (
                httpcore.ConnectionPool(max_connections=1, network_backend=backend) as pool,
                pool.stream(
                    "POST", url, headers=list(headers.items()), content=body, extensions={"timeout": timeouts}
                ) as answer,
            ):
                found = bytearray()
                for chunk in answer.iter_stream():
                    found += chunk
                    if len(found) > most_bytes:
                        raise TooMuch(f"the answer of {url} has more than {most_bytes} bytes")
                return answer.status, bytes(found)
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            why = str(error) or type(error).__name__
            raise Unreachable(f"{url} did not answer within {timeout_s:g} s: {why}") from error


def check_url(url: str) -> None:
    """Raises AddressRefused unless it is a whole http or https URL without a user's name in it."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        right = False
    if not right or parts.username is not None or parts.fragment or not url.isascii() or not url.isprintable():
        raise AddressRefused(f"{url!r} is no whole http:// or https:// URL without a user name and fragment")


def is_public(address: Address) -> bool:
    """Whether this is an address of the public internet. One that wraps another counts as what it wraps."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


class _Guarded(httpcore.NetworkBackend):
    """Connects to allowed addresses only, until the deadline."""

    def __init__(self, allowed: Sequence[Network], deadline: float) -> None:
        self._allowed = allowed
        self._deadline = deadline
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = _resolved(host, port)
        good = [address for address in addresses if self._may(address)]
        if not good:
            raise AddressRefused(
                # Not what it resolves to: that would tell a stranger about names and addresses inside.
                f"{host} is not of the public internet: the operator may allow its network with "
                "LONGTAIL_OUTBOUND_NETWORKS"
            )
        error: Exception | None = None
        for address in good[:3]:
            try:
                left = _left(self._deadline, httpcore.ConnectTimeout)
                stream = self._inner.connect_tcp(str(address), port, left, local_address, socket_options)
                return _Deadlined(stream, self._deadline)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as failed:
                error = failed
        assert error is not None
        raise error

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        raise AddressRefused("a socket of this machine is no address that a user may give")

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)

    def _may(self, address: Address) -> bool:
        plain = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped else address
        return is_public(address) or any(plain in network for network in self._allowed)


class _Deadlined(httpcore.NetworkStream):
    """A connection on which everything ends at one time: a timeout for each read alone can be stretched without end."""

    def __init__(self, inner: httpcore.NetworkStream, deadline: float) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(self._deadline, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(self._deadline, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        left = _left(self._deadline, httpcore.ConnectTimeout)
        return _Deadlined(self._inner.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _left(deadline: float, late: type[Exception]) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise late("the time is over")
    return left


def _resolved(host: str, port: int) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpcore.ConnectError(f"the name {host!r} is not known: {error}") from error
    return list(dict.fromkeys(ipaddress.ip_address(str(info[4][0]).partition("%")[0]) for info in found))
