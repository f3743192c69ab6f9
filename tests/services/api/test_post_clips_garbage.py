"""POST /v1/clips against garbage: each is told what is wrong and what to do, and leaves nothing behind."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import func, select

from engine.store.tables.recordings import Blob, Calibration, Clip, Drive, MediaClaim, SplitGroup, Stream, Vehicle
from tests.services.api.hostile_media import claiming, jpeg_bomb

Manifest = Callable[..., dict[str, Any]]
ROWS = (Vehicle, SplitGroup, Drive, Clip, Stream, Calibration, MediaClaim, Blob)
FORM = "multipart/form-data; boundary=x"


@pytest.fixture
def small_limits() -> dict[str, Any]:
    """Settings of the API in this file: an upload may have 4 MiB."""
    return {"max_upload_bytes": 4 << 20}


@pytest.fixture(autouse=True)
def _nothing_is_left(api: Any) -> Iterator[None]:
    """After each test: no file in the blob store, finished or not, no row about a recording; and it still serves."""
    yield
    deadline = time.monotonic() + 10
    while api.blob_files() and time.monotonic() < deadline:
        time.sleep(0.02)  # an upload that broke off is dropped when the server hears of it
    assert api.blob_files() == []
    with api.session() as session:
        counts = {table.__tablename__: session.scalar(select(func.count()).select_from(table)) for table in ROWS}
    assert not any(counts.values()), counts
    assert api.client(None).get("/readyz").status_code == 200


@pytest.fixture
def device(api: Any) -> httpx.Client:
    return api.device("sim-07")


def problem(status: int, kind: str | None, document: dict[str, Any], code: str, *says: str) -> None:
    """The answer is this refusal, whole, and its words hold `says`."""
    assert kind == "application/problem+json", document
    assert (document["type"], document["status"], status) == (f"/problems/{code}", status, document["status"]), document
    assert document["title"]
    assert document["hint"]
    for words in says:
        assert words in document["detail"], document


def refused(answer: httpx.Response, status: int, code: str, *says: str) -> None:
    assert answer.status_code == status, answer.text
    problem(answer.status_code, answer.headers["content-type"], answer.json(), code, *says)


def send_raw(api: Any, device: httpx.Client, headers: dict[str, str], body: Iterable[bytes]) -> tuple[int, Any, Any]:
    """Status, content type and document of an answer to exactly these headers and bytes."""
    address = urlsplit(api.url)
    lines = {"Host": "x", "Authorization": device.headers["authorization"], "Content-Type": FORM, **headers}
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        connection.sendall(f"POST /v1/clips HTTP/1.1\r\n{head}\r\n".encode())
        for piece in body:
            try:
                connection.sendall(piece)
            except OSError:
                break  # it was refused already and the server listens no more
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.headers["content-type"], json.loads(answer.read())


def part(name: bytes, content: bytes, more: bytes = b"") -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="' + name + b'"' + more + b"\r\n\r\n" + content + b"\r\n"


def form(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--x--\r\n"


def post(device: httpx.Client, body: bytes, content_type: str = FORM) -> httpx.Response:
    return device.post("/v1/clips", content=body, headers={"Content-Type": content_type})


# --- media ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda video: video[: len(video) // 2], "again"),
        (lambda video: video[:-1], "again"),
        (lambda video: video[:40], "again"),
        (lambda video: b"a text with a name that ends in .mp4\n" * 500, "no whole video file"),
        (lambda video: b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hosts\n", "no whole video file"),
        (lambda video: b"PK\x03\x04" + os.urandom(5000), "no whole video file"),
        (lambda video: b"", "the file is empty"),
        (lambda video: video[:8] + os.urandom(len(video) - 8), "again"),
        (lambda video: claiming(video, 16_320, 16_320), "does not decode"),
        (lambda video: claiming(video, 65_520, 65_520), "does not decode"),
        (lambda video: jpeg_bomb(12_000, 12_000), "12000x12000 pixels"),
        (lambda video: jpeg_bomb(16, 8_200), "16x8200 pixels"),
    ],
    ids=[
        *("half", "no last byte", "first bytes", "text", "playlist", "archive", "nothing", "noise"),
        *("huge in the header", "huger in the header", "a huge picture", "a tall picture"),
    ],
)
def test_what_is_no_whole_video_is_refused(
    api: Any, device: httpx.Client, manifest: Manifest, video: bytes, make: Callable[[bytes], bytes], says: str
) -> None:
    begun = time.monotonic()
    answer = api.post_clip(device, manifest(), {"front": make(video)})
    refused(answer, 422, "media-rejected", "stream 'front'", says)
    assert time.monotonic() - begun < 10


def test_one_bad_stream_of_two_refuses_the_clip(
    api: Any, device: httpx.Client, manifest: Manifest, make_video: Callable[..., bytes]
) -> None:
    both = manifest(streams=[{"name": "front"}, {"name": "rear"}])
    answer = api.post_clip(device, both, {"front": make_video(1), "rear": make_video(2)[:900]})
    refused(answer, 422, "media-rejected", "stream 'rear'")


# --- the manifest and the streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ({"codec": "hevc"}, "codec hevc was announced, the media has h264"),
        ({"width": 1920}, "width 1920 was announced, the media has 64"),
        ({"width": 64, "height": 64}, "height 64 was announced, the media has 48"),
        ({"fps": 30}, "30 frames a second were announced, the media has 10"),
        ({"fps": 8.9, "codec": "h264"}, "8.9 frames a second were announced"),
    ],
)
def test_a_manifest_that_says_otherwise_than_the_media_is_refused(
    api: Any, device: httpx.Client, manifest: Manifest, video: bytes, claim: dict[str, Any], says: str
) -> None:
    answer = api.post_clip(device, manifest(streams=[{"name": "front", **claim}]), {"front": video})
    refused(answer, 422, "stream-mismatch", "stream 'front'", says)


def test_missing_and_extra_and_wrongly_hashed_streams_are_refused(
    api: Any, device: httpx.Client, manifest: Manifest, video: bytes
) -> None:
    refused(api.post_clip(device, manifest(), {}), 422, "stream-missing", "'front'")
    refused(api.post_clip(device, manifest(), {"rear": video}), 422, "stream-missing", "'front'")
    refused(api.post_clip(device, manifest(), {"front": video, "rear": video}), 422, "stream-unannounced", "'rear'")
    twice = manifest(streams=[{"name": "front"}, {"name": "front"}])
    refused(api.post_clip(device, twice, {"front": video}), 422, "invalid-request", "two streams have the same name")
    hashed = manifest(streams=[{"name": "front", "sha256": "0" * 64}])
    refused(api.post_clip(device, hashed, {"front": video}), 422, "hash-mismatch", "0" * 64)


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ('{"start_ns": NaN}', "/manifest"),
        ("[" * 500_000, "/manifest"),
        ("null", "/manifest"),
        ('"manifest"', "/manifest"),
        ("", "/manifest"),
        ("\x00", "/manifest"),
        (b"\xff\xfe{}", "/manifest"),
    ],
    ids=["no number", "a deep list", "null", "a text", "nothing", "NUL", "no UTF-8"],
)
def test_what_is_no_manifest_is_refused(device: httpx.Client, video: bytes, text: str | bytes, pointer: str) -> None:
    content = text.encode() if isinstance(text, str) else text
    answer = post(device, form(part(b"stream:front", video), part(b"manifest", content)))
    refused(answer, 422, "invalid-request")
    assert answer.json()["errors"][0]["pointer"].startswith(pointer)
    assert len(answer.content) < 50_000


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ('"telemetry": [{"t_ns": 1, "speed_mps": NaN}]', "/manifest/telemetry/0/speed_mps"),
        ('"telemetry": [{"t_ns": 1, "speed_mps": -Infinity}]', "/manifest/telemetry/0/speed_mps"),
        ('"telemetry": [{"t_ns": 1, "altitude_m": 1e999}]', "/manifest/telemetry/0/altitude_m"),
        ('"telemetry": [{"t_ns": NaN}]', "/manifest/telemetry/0/t_ns"),
        ('"events": [{"t_ns": 1e300, "name": "x"}]', "/manifest/events/0/t_ns"),
        ('"tags": {"lux": Infinity}', "/manifest/tags"),
        ('"tags": {"lux": ' + "9" * 5000 + "}", "/manifest"),
        ('"tags": {"a": "\\ud800"}', "/manifest"),
        ('"tags": ' + DEEP, "/manifest"),
        ('"' + "k" * 300_000 + '": 1', "/manifest/kkk"),
        ('"start_ns": -1', "/manifest/start_ns"),
        ('"clock_error_ns": 1e40', "/manifest/clock_error_ns"),
        ('"streams": [{"name": "../../etc/passwd"}]', "/manifest/streams/0/name"),
        ('"streams": [{"name": "front", "fps": NaN}]', "/manifest/streams/0/fps"),
        ('"streams": [{"name": "front", "width": 0}]', "/manifest/streams/0/width"),
    ],
    ids=lambda value: value[:40],
)
def test_a_manifest_with_nonsense_in_it_is_refused_where_it_stands(
    api: Any, device: httpx.Client, manifest: Manifest, video: bytes, change: str, pointer: str
) -> None:
    key = json.loads("{" + change.partition(":")[0] + ": 0}").popitem()[0]
    rest = {name: value for name, value in manifest().items() if name != key}
    text = json.dumps(rest)[:-1] + ", " + change + "}"
    answer = api.post_clip(device, text, {"front": video})
    refused(answer, 422, "invalid-request")
    assert answer.json()["errors"][0]["pointer"].startswith(pointer), answer.json()["errors"][:2]
    assert len(answer.content) < 50_000, "an answer is not as long as what was sent"


def test_many_wrong_fields_get_a_short_answer(api: Any, device: httpx.Client, manifest: Manifest, video: bytes) -> None:
    answer = api.post_clip(device, manifest(telemetry=[{}] * 90_000), {"front": video})
    refused(answer, 422, "invalid-request", "89999 more")
    assert len(answer.json()["errors"]) == 50


# --- the form -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        b"../../etc/passwd",
        b"stream:../../etc/passwd",
        b"stream:front\x00.mp4",
        b"stream:" + b"long" * 500,
        "stream:vörn-東京".encode(),
        b"stream:\xff\xfe",
        b"stream:",
        b"Stream:front",
    ],
    ids=["path", "stream with a path", "NUL", "long", "unicode", "no UTF-8", "empty", "capital"],
)
def test_a_part_with_a_strange_name_is_refused_and_names_no_file(
    api: Any, device: httpx.Client, manifest: Manifest, video: bytes, name: bytes
) -> None:
    text = json.dumps(manifest()).encode()
    body = form(part(b"manifest", text), part(b"stream:front", video), part(name, video))
    code = "stream-unannounced" if name.startswith(b"stream:") else "part-unknown"
    refused(post(device, body), 422, code)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (form(part(b"manifest", b"{}"), part(b"manifest", b"{}")), 400, "part-twice"),
        (form(part(b"stream:front", b"a"), part(b"stream:front", b"b")), 400, "part-twice"),
        (form(*(part(b"stream:%d" % number, b"a") for number in range(100))), 400, "too-many-parts"),
        (form(b"--x\r\nContent-Type: text/plain\r\n\r\nno name\r\n"), 400, "bad-multipart"),
        (form(b"--x\r\n\r\nno header\r\n"), 400, "bad-multipart"),
        (form(part(b"stream:" + b"n" * 100_000, b"a")), 400, "bad-multipart"),
        (form(b"--x\r\n" + b"A: b\r\n" * 5000 + b"\r\na\r\n"), 400, "bad-multipart"),
        (b"--y\r\nanother boundary\r\n--y--\r\n", 400, "bad-multipart"),
        (b"\r\n" * 100_000, 400, "bad-multipart"),
        (form(part(b"stream:front", b"a" * 100))[:-8], 400, "bad-multipart"),
        (form(part(b"stream:front", b"a")), 422, "manifest-missing"),
        (b"--x--\r\n", 422, "manifest-missing"),
        (form(part(b"manifest", b" " * (1 << 20) + b"{}")), 413, "document-too-large"),
    ],
    ids=[
        *("two manifests", "a stream twice", "a hundred parts", "no name", "no header", "an endless header"),
        *("endless headers", "another boundary", "empty lines", "no end", "no manifest", "nothing", "a large manifest"),
    ],
)
def test_a_form_that_is_none_is_refused(device: httpx.Client, body: bytes, status: int, code: str) -> None:
    refused(post(device, body), status, code)


@pytest.mark.parametrize(
    "content_type",
    [
        *("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=" + "x" * 500),
        *("multipart/mixed; boundary=x", "video/mp4", "application/x-www-form-urlencoded", "; boundary=x"),
    ],
)
def test_a_body_that_is_no_form_with_a_boundary_is_refused(device: httpx.Client, content_type: str) -> None:
    refused(post(device, form(part(b"manifest", b"{}")), content_type), 415, "not-multipart")


# --- how much -------------------------------------------------------------------------------------------------------


def test_four_gigabytes_that_are_declared_are_refused_before_they_are_read(api: Any, device: httpx.Client) -> None:
    told = send_raw(api, device, {"Content-Length": str(4 << 30)}, [part(b"stream:front", b"a")])
    assert told[0] == 413
    problem(*told, "too-large", str(4 << 30), str(4 << 20))


def test_chunks_past_the_limit_are_refused_as_they_come(api: Any, device: httpx.Client) -> None:
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        opening = b'--x\r\nContent-Disposition: form-data; name="stream:front"\r\n\r\n'
        yield b"%x\r\n%s\r\n" % (len(opening), opening)
        for _ in range(64):
            yield b"%x\r\n%s\r\n" % (1 << 20, os.urandom(1 << 20))
            sent += 1 << 20

    told = send_raw(api, device, {"Transfer-Encoding": "chunked"}, chunks())
    assert told[0] == 413
    problem(*told, "too-large", str(4 << 20))
    assert sent < 48 << 20, "it went on reading what it had refused"


def test_a_body_in_crumbs_costs_little_more_than_a_whole_one(api: Any, device: httpx.Client) -> None:
    opening = b'--x\r\nContent-Disposition: form-data; name="stream:front"\r\n\r\n'
    crumbs = (b"%x\r\n%s\r\n" % (len(opening), opening), b"1\r\na\r\n" * 200_000, b"0\r\n\r\n")
    begun = time.monotonic()
    told = send_raw(api, device, {"Transfer-Encoding": "chunked"}, crumbs)
    problem(*told, "bad-multipart", "ends before the form does")
    assert time.monotonic() - begun < 20


def test_a_length_that_is_too_small_cuts_the_form_off(
    api: Any, device: httpx.Client, manifest: Manifest, video: bytes
) -> None:
    body = form(part(b"manifest", json.dumps(manifest()).encode()), part(b"stream:front", video))
    told = send_raw(api, device, {"Content-Length": str(len(body) - 100)}, [body])
    assert told[0] == 400
    problem(*told, "bad-multipart", "ends before the form does")


def test_a_length_that_is_too_large_and_a_sender_that_goes_keep_nothing(
    api: Any, device: httpx.Client, manifest: Manifest, video: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    body = form(part(b"manifest", json.dumps(manifest()).encode()), part(b"stream:front", video))
    address = urlsplit(api.url)
    for ending in (socket.SHUT_WR, socket.SHUT_RDWR):
        with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
            head = f"Host: x\r\nAuthorization: {device.headers['authorization']}\r\nContent-Type: {FORM}\r\n"
            connection.sendall(f"POST /v1/clips HTTP/1.1\r\n{head}Content-Length: {len(body) + 1000}\r\n\r\n".encode())
            connection.sendall(body)
            connection.shutdown(ending)
            if ending == socket.SHUT_WR:
                connection.recv(1000)
    time.sleep(0.2)
    assert "Traceback" not in "".join(capsys.readouterr()), "that a sender went is no failure of ours"


@pytest.mark.parametrize("headers", [{"Content-Length": str(1 << 30)}, {"Transfer-Encoding": "chunked"}])
def test_of_a_stranger_who_sends_much_little_is_read(api: Any, headers: dict[str, str]) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 256 << 20:
            yield b"100000\r\n" + bytes(1 << 20) + b"\r\n"
            sent += 1 << 20

    told = send_raw(api, api.client("lt_device_wrong"), headers, endless())
    assert told[0] == 401
    problem(*told, "unknown-token")
    assert sent < 32 << 20
