"""How a vehicle, or a command on its behalf, sends clips and labels through the public API."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Self

import httpx

from engine.domain.answers import Answer

BUSY = (429, 500, 502, 503, 504)
LONGEST_WAIT_S = 30.0
LABELS_A_CALL = 20


class UplinkError(RuntimeError):
    """The engine would not take what was sent; the message holds its answer."""


class ClipConflictError(UplinkError):
    """A 409: the engine has another clip under this external id, or these bytes under another drive."""


@dataclass(frozen=True)
class Acknowledged:
    """A clip that is durable. `replayed`: the engine had it already, unchanged."""

    id: str
    replayed: bool


class Uplink:
    """Sends to one Longtail. One instance may serve one thread.

    `token` is what labels are imported with, the device key if none is given. `client` may be any httpx client with a
    base URL.
    """

    def __init__(
        self,
        url: str,
        device_key: str,
        *,
        token: str | None = None,
        client: httpx.Client | None = None,
        attempts: int = 6,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client or httpx.Client(
            base_url=url.rstrip("/"), timeout=httpx.Timeout(60, connect=5), trust_env=False
        )
        self._device_key, self._token = device_key, token or device_key
        self._attempts, self._sleep = attempts, sleep

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send_clip(self, manifest: Mapping[str, Any], media: Mapping[str, bytes | BinaryIO]) -> Acknowledged:
        """Send a clip with its media by stream, again and again under its external id until it is taken or refused.

        Raises ClipConflictError on a 409, UplinkError on any other refusal or when the attempts are used up.
        """
        files: dict[str, Any] = {"manifest": (None, json.dumps(manifest), "application/json")}
        for stream, content in media.items():
            files[f"stream:{stream}"] = (f"{stream}.bin", content, "application/octet-stream")
        body = self._post("/v1/clips", self._device_key, {}, files=files).json()
        return Acknowledged(str(body["id"]), not body["created"])

    def send_labels(self, ontology: Mapping[str, Any], source: str, labels: Sequence[Mapping[str, Any]]) -> None:
        """Import labels, a few frames' worth a call; `ontology` is its name and version. Raises UplinkError."""
        for start in range(0, len(labels), LABELS_A_CALL):
            body = {"ontology": ontology, "source": source, "labels": list(labels[start : start + LABELS_A_CALL])}
            digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
            self._post("/v1/labels:import", self._token, {"Idempotency-Key": digest}, json=body)

    def _post(self, path: str, key: str, headers: Mapping[str, str], **body: Any) -> httpx.Response:
        headers = {**headers, "Authorization": f"Bearer {key}"}
        wait, said = 0.5, "no answer"
        for attempt in range(self._attempts):
            if attempt:
                self._sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_S)
                for _, content, _ in (body.get("files") or {}).values():
                    if hasattr(content, "seek"):
                        content.seek(0)
            try:
                answer = self._client.post(path, headers=headers, **body)
            except httpx.TransportError as failed:
                said = f"{type(failed).__name__}: {failed}"
                continue
            if answer.is_success:
                return answer
            said = _said(answer)
            if answer.status_code == 409:
                raise ClipConflictError(said)
            if answer.status_code not in BUSY:
                raise UplinkError(said)
            wait = min(max(wait, _retry_after(answer)), LONGEST_WAIT_S)
        raise UplinkError(f"POST {path} failed {self._attempts} times, last with {said}")


def _said(answer: httpx.Response) -> str:
    """What the engine said, in words: what is wrong and what to do about it, where the answer holds that."""
    try:
        problem = answer.json()
        return f"{problem['detail']}: {problem['hint']} ({answer.status_code})"
    except (ValueError, KeyError, TypeError):
        return f"POST {answer.request.url.path} was answered with {answer.status_code}: {answer.text[:400]}"


def label_document(clip_id: str, stream: str, pts: int, head: str, answer: Answer) -> dict[str, Any]:
    """A label as the import takes it."""
    array = None if answer.array is None else base64.b64encode(answer.array).decode()
    return {
        "clip": clip_id,
        "stream": stream,
        "pts": pts,
        "head": head,
        "value": dict(answer.value),
        "array_base64": array,
        "annotated_classes": None,
    }


def _retry_after(answer: httpx.Response) -> float:
    """Seconds that the engine asks us to wait, 0 when it does not say."""
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "0")))
    except ValueError:
        return 0.0
