"""A URL of a user's leads to the public internet or where the operator allows, and no trick makes it lead elsewhere."""

from __future__ import annotations

import ipaddress
import socket
import time
from typing import Any

import pytest
from scorer_server import ScorerServer

from engine.adapters.outbound import AddressRefused, Outbound, TooMuch, Unreachable, check_url, is_public

LOOPBACK = ["127.0.0.0/8"]


def post(outbound: Outbound, url: str, timeout_s: float = 5, most_bytes: int = 1 << 20) -> tuple[int, bytes]:
    return outbound.post(url, b"{}", {"Content-Type": "application/json"}, timeout_s=timeout_s, most_bytes=most_bytes)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_addresses_of_the_public_internet(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # where clouds keep their secrets
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "192.0.2.1",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:db8::1",
    ],
)
def test_addresses_that_are_not(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "127.1", "2130706433", "0x7f000001", "0.0.0.0"]
)
def test_no_spelling_of_this_machine_is_reached(scorer_server: ScorerServer, host: str) -> None:
    with pytest.raises((AddressRefused, Unreachable)):
        post(Outbound(), f"http://{host}:{scorer_server.port}/")
    assert scorer_server.seen == []


def test_what_the_operator_allows_is_reached(scorer_server: ScorerServer) -> None:
    scorer_server.replies = [(200, {}, b"yes")]
    assert post(Outbound(LOOPBACK), scorer_server.url) == (200, b"yes")
    with pytest.raises(AddressRefused, match="LONGTAIL_OUTBOUND_NETWORKS"):
        post(Outbound(["10.0.0.0/8"]), scorer_server.url)


def test_a_name_that_turns_private_is_refused_when_it_is_connected_to(
    scorer_server: ScorerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def rebinding(host: str, port: int, *arguments: Any, **options: Any) -> list[Any]:
        """Public when looked at first, this machine from then on."""
        asked.append(host)
        address = "8.8.8.8" if len(asked) == 1 else "127.0.0.1"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    connected: list[Any] = []

    def connect(address: Any, *arguments: Any, **options: Any) -> Any:
        connected.append(address)
        raise OSError("there is no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(Unreachable):
        post(Outbound(), f"http://rebind.example:{scorer_server.port}/")
    assert asked == ["rebind.example"], "the name is resolved once for a connection"
    assert connected == [("8.8.8.8", scorer_server.port)], "and what was looked at is connected to"
    with pytest.raises(AddressRefused, match=r"rebind\.example is not of the public internet"):
        post(Outbound(), f"http://rebind.example:{scorer_server.port}/")
    assert len(connected) == 1


def test_redirects_are_not_followed(scorer_server: ScorerServer) -> None:
    scorer_server.replies = [(302, {"Location": "http://169.254.169.254/latest"}, b"")]
    assert post(Outbound(LOOPBACK), scorer_server.url)[0] == 302
    assert len(scorer_server.seen) == 1


def test_proxies_of_the_environment_are_not_used(scorer_server: ScorerServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, scorer_server.url)
    with pytest.raises((Unreachable, AddressRefused)):
        post(Outbound(["127.0.0.2/32"]), "http://127.0.0.2:9/", timeout_s=1)
    assert scorer_server.seen == []


def test_an_answer_that_is_too_large_or_too_slow_is_cut_off(scorer_server: ScorerServer) -> None:
    scorer_server.replies = [(200, {}, b"x" * 5000)]
    with pytest.raises(TooMuch):
        post(Outbound(LOOPBACK), scorer_server.url, most_bytes=4000)
    scorer_server.replies = [(200, {}, b"x" * 500)]
    scorer_server.drip_s = 0.05
    started = time.monotonic()
    with pytest.raises(Unreachable):
        post(Outbound(LOOPBACK), scorer_server.url, timeout_s=0.5)
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "//example.com",
        "http://",
        "http://user:secret@example.com/",
        "http://example.com/#a",
        "http://exa\nmple.com/",
        "http://example.com:99999/",
        "http://exämple.com/",
    ],
)
def test_what_is_no_url_that_we_go_to(url: str) -> None:
    with pytest.raises(AddressRefused):
        check_url(url)
