"""POST /v1/clips over real HTTP, a real decoder and a real database."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from sqlalchemy import func, select

from engine.store.tables.access import IdempotencyKey
from engine.store.tables.recordings import Calibration, Clip, MediaClaim, Stream


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["type"] == f"/problems/{code}"
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    assert document["hint"]
    return document


def test_clip_is_taken_and_durable(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    device = api.device("sim-07")
    answer = api.post_clip(device, manifest(), {"front": video})
    assert answer.status_code == 202, answer.text
    assert answer.json()["created"] is True
    assert answer.json()["clock_suspect"] is False
    clip = device.get(answer.headers["location"]).json()
    assert clip["id"] == answer.json()["id"]
    assert (clip["vehicle"], clip["drive"], clip["split"], clip["state"]) == ("sim-07", "d-1", "pool", "received")
    assert clip["split_group"] == "sim-07/d-1"
    (stream,) = clip["streams"]
    assert stream["sha256"] == hashlib.sha256(video).hexdigest()
    assert (stream["codec"], stream["width"], stream["height"]) == ("h264", 64, 48)
    assert len(stream["pts"]) == 5
    assert stream["calibration"]["intrinsics"]["fx"] == 50
    num, den = stream["time_base"]
    assert (
        clip["end_ns"] - clip["start_ns"] == (stream["pts"][-1] - stream["pts"][0]) * num * 10**9 // den == 400_000_000
    )
    (blob,) = api.blob_files()
    assert blob.read_bytes() == video


def test_same_clip_again_is_the_same_clip(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    device = api.device("sim-07")
    first = api.post_clip(device, manifest(), {"front": video})
    declared = manifest()
    declared["streams"][0]["sha256"] = hashlib.sha256(video).hexdigest()
    declared["drive"]["split_group"] = None
    again = api.post_clip(device, declared, {"front": video})
    assert again.status_code == 202
    assert again.headers["location"] == first.headers["location"]
    assert again.json()["created"] is False
    with api.session() as session:
        assert session.scalar(select(func.count()).select_from(Clip)) == 1


def test_same_id_with_other_content_is_a_conflict(
    api: Any, manifest: Callable[..., Any], make_video: Callable[..., bytes], video: bytes
) -> None:
    device = api.device("sim-07")
    api.post_clip(device, manifest(), {"front": video})
    problem(api.post_clip(device, manifest(tags={"weather": "rain"}), {"front": video}), 409, "clip-conflict")
    problem(api.post_clip(device, manifest(), {"front": make_video(seed=1)}), 409, "clip-conflict")
    assert len(api.blob_files()) == 1


def test_same_bytes_in_another_drive_are_a_conflict(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    gateway = api.device()
    api.post_clip(gateway, manifest(), {"front": video})
    other = manifest("c-2", drive={"external_id": "d-2", "split": "golden"})
    problem(api.post_clip(gateway, other, {"front": video}), 409, "media-of-another-drive")
    with api.session() as session:
        assert session.scalar(select(func.count()).select_from(Clip)) == 1
        assert session.scalar(select(func.count()).select_from(MediaClaim)) == 1


def test_same_bytes_in_the_same_drive_are_taken(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    device = api.device("sim-07")
    first = api.post_clip(device, manifest("c-1"), {"front": video})
    second = api.post_clip(device, manifest("c-2"), {"front": video})
    assert (first.status_code, second.status_code) == (202, 202)
    with api.session() as session:
        assert session.scalar(select(func.count()).select_from(Clip)) == 2
        assert session.scalar(select(func.count()).select_from(Calibration)) == 1
        assert session.scalar(select(func.count(Stream.blob_id.distinct()))) == 1


def test_split_is_decided_with_the_first_clip(
    api: Any, manifest: Callable[..., Any], make_video: Callable[..., bytes]
) -> None:
    gateway = api.device()
    golden = manifest("c-1", drive={"external_id": "d-1", "split_group": "town", "split": "golden"})
    assert api.post_clip(gateway, golden, {"front": make_video(1)}).status_code == 202
    pool = manifest("c-2", drive={"external_id": "d-2", "split_group": "town", "split": "pool"})
    problem(api.post_clip(gateway, pool, {"front": make_video(2)}), 409, "split-conflict")
    silent = manifest("c-3", drive={"external_id": "d-3", "split_group": "town"})
    answer = api.post_clip(gateway, silent, {"front": make_video(3)})
    assert gateway.get(answer.headers["location"]).json()["split"] == "golden"
    moved = manifest("c-4", drive={"external_id": "d-3", "split_group": "village"})
    problem(api.post_clip(gateway, moved, {"front": make_video(4)}), 409, "split-group-conflict")
    assert len(api.blob_files()) == 2, "what is refused is not kept"


def test_damaged_and_foreign_media_are_refused_and_cost_nothing(
    api: Any, manifest: Callable[..., Any], video: bytes
) -> None:
    device = api.device("sim-07")
    for content in (b"not a video at all, whatever its name", video[: len(video) // 2], b""):
        document = problem(api.post_clip(device, manifest(), {"front": content}), 422, "media-rejected")
        assert "front" in document["detail"]
    assert api.blob_files() == []
    with api.session() as session:
        assert session.scalar(select(func.count()).select_from(Clip)) == 0


def test_declared_hash_must_match(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    document = manifest()
    document["streams"][0]["sha256"] = "0" * 64
    problem(api.post_clip(api.device("sim-07"), document, {"front": video}), 422, "hash-mismatch")
    assert api.blob_files() == []


def test_manifest_is_checked(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    device = api.device("sim-07")
    bad: list[tuple[Any, str]] = [
        ("{not json", "/manifest"),
        ({**manifest(), "vehicel": {}}, "/manifest/vehicel"),
        ({key: value for key, value in manifest().items() if key != "licence"}, "/manifest/licence"),
        (manifest(external_id="nul\x00"), "/manifest/external_id"),
        (manifest(tags={"weather": "\x00"}), "/manifest/tags"),
        (manifest(start_ns=10**20), "/manifest/start_ns"),
        (manifest(telemetry=[{"t_ns": 1, "speed_mps": float("nan")}]), "/manifest/telemetry/0/speed_mps"),
        (manifest(telemetry=[{"t_ns": 1, "yaw_rate_radps": float("inf")}]), "/manifest/telemetry/0/yaw_rate_radps"),
        (manifest(telemetry=[{"t_ns": 1, "altitude_m": float("nan")}]), "/manifest/telemetry/0/altitude_m"),
        (manifest(tags={"lux": float("nan")}), "/manifest/tags"),
        (manifest(streams=[]), "/manifest/streams"),
        (manifest(retain_until="2030-01-01T00:00:00"), "/manifest/retain_until"),
    ]
    for document, pointer in bad:
        found = problem(api.post_clip(device, document, {"front": video}), 422, "invalid-request")
        assert found["errors"][0]["pointer"] == pointer, found
    assert api.blob_files() == []


def test_parts_must_be_those_of_the_manifest(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    device = api.device("sim-07")
    problem(api.post_clip(device, manifest(), {}), 422, "stream-missing")
    problem(api.post_clip(device, manifest(), {"front": video, "rear": video}), 422, "stream-unannounced")
    problem(device.post("/v1/clips", files={"stream:front": video}), 422, "manifest-missing")
    problem(device.post("/v1/clips", json=manifest()), 415, "not-multipart")
    boundary = {"Content-Type": "multipart/form-data; boundary=x"}
    problem(device.post("/v1/clips", content=b"--x\r\nno form", headers=boundary), 400, "bad-multipart")
    problem(device.post("/v1/clips", content=b"", headers=boundary), 400, "bad-multipart")
    half = b'--x\r\nContent-Disposition: form-data; name="stream:front"\r\n\r\n' + video
    problem(device.post("/v1/clips", content=half, headers=boundary), 400, "bad-multipart")
    assert api.blob_files() == []


def test_manifest_larger_than_its_limit_is_refused(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    answer = api.post_clip(api.device("sim-07"), manifest(tags={"note": "x" * (1 << 20)}), {"front": video})
    problem(answer, 413, "document-too-large")


def test_who_may_send(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    refused = problem(api.post_clip(api.client("lt_device_wrong"), manifest(), {"front": video}), 401, "unknown-token")
    assert "lt_device_wrong" not in str(refused)
    answer = api.post_clip(api.client(None), manifest(), {"front": video})
    problem(answer, 401, "no-token")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    problem(api.post_clip(api.device("sim-08"), manifest(), {"front": video}), 403, "vehicle-not-allowed")
    problem(api.post_clip(api.token("clips:read"), manifest(), {"front": video}), 403, "missing-scope")
    assert api.blob_files() == []
    assert api.post_clip(api.token("clips:write"), manifest(), {"front": video}).status_code == 202


def test_device_sees_its_own_clips_only(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    owner, other = api.device("sim-07"), api.device("sim-08")
    location = api.post_clip(owner, manifest(), {"front": video}).headers["location"]
    assert owner.get(location).status_code == 200
    # It can't tell a clip of another vehicle from one that is none.
    nowhere = f"/v1/clips/{uuid.uuid4()}"
    told = [problem(other.get(address), 404, "no-such-clip") for address in (location, nowhere)]
    assert told[0] == {**told[1], "detail": f"there is no clip {location.rpartition('/')[2]}"}
    problem(api.token("queue:read").get(location), 403, "missing-scope")
    assert api.token("clips:read").get(location).status_code == 200


def test_idempotency_key(
    api: Any, manifest: Callable[..., Any], make_video: Callable[..., bytes], video: bytes
) -> None:
    device = api.device("sim-07")
    key = {"Idempotency-Key": "upload-1"}
    first = api.post_clip(device, manifest(), {"front": video}, key)
    again = api.post_clip(device, manifest(), {"front": video}, key)
    assert again.headers["location"] == first.headers["location"]
    other = api.post_clip(device, manifest("c-2"), {"front": make_video(2)}, key)
    problem(other, 422, "idempotency-key-reused")
    elsewhere = api.post_clip(api.device(), manifest("c-3"), {"front": video}, key)
    assert elsewhere.status_code == 202, "another caller's keys are its own"
    with api.session() as session:
        assert session.scalar(select(func.count()).select_from(IdempotencyKey)) == 2


def test_wrong_clock_is_taken_and_flagged(
    api: Any, manifest: Callable[..., Any], make_video: Callable[..., bytes]
) -> None:
    device = api.device("sim-07")
    day = 86_400 * 10**9
    for number, (start_ns, suspect) in enumerate(
        [
            (0, True),
            (time.time_ns() + 30 * day, True),
            (time.time_ns() + day, False),
            (time.time_ns() - 900 * day, False),
        ]
    ):
        answer = api.post_clip(device, manifest(f"c-{number}", start_ns=start_ns), {"front": make_video(number)})
        assert answer.json()["clock_suspect"] is suspect
        assert device.get(answer.headers["location"]).json()["clock_suspect"] is suspect
    years = manifest("c-4", clock_error_ns=3 * 365 * day)
    assert api.post_clip(device, years, {"front": make_video(4)}).json()["clock_suspect"] is True


def test_same_clip_from_eight_senders_at_once_is_one_clip(api: Any, manifest: Callable[..., Any], video: bytes) -> None:
    device = api.device("sim-07")
    with ThreadPoolExecutor(8) as senders:
        answers = list(senders.map(lambda _: api.post_clip(device, manifest(), {"front": video}), range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.headers["location"] for answer in answers}) == 1
    assert sum(answer.json()["created"] for answer in answers) == 1
    with api.session() as session:
        assert session.scalar(select(func.count()).select_from(Clip)) == 1
        assert session.scalar(select(func.count()).select_from(Stream)) == 1
    assert len(api.blob_files()) == 1
