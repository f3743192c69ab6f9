"""The Scorer that is somebody's URL: pictures go out, canonical answers come back.

docs/bring-your-model.md has the contract. A version's artifact is a document: the declaration, and what the scorer
answered to a few golden pictures when it was registered. It is asked the same again from time to time, so that it can't
become another model under the same version.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.adapters.outbound import AddressRefused, Outbound, TooMuch, Unreachable, check_url
from engine.adapters.picture_embedding import DIMENSIONS, thumbnail_embedding
from engine.adapters.same_answers import differs
from engine.domain.answers import Answer, AnswerError, check_prediction
from engine.domain.formats import ModelFormat
from engine.domain.ontology import Head, Kind
from engine.domain.refusals import Conflict, Invalid
from engine.ports import BlobCorrupt, BlobNotFound, FrameScore, ModelFiles, Picture, Redactor, ScorerUnavailable

CONTRACT = 1
MOST_BYTES = 64 << 20
TRIES = 3
PAUSE_S = 0.5
AGAIN_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
ANSWER_INVALID = "scorer-answer-invalid"


class Declaration(BaseModel):
    """A version's config. `heads`: names of the line's heads. `embedding`: it gives 128 numbers of unit length for a
    picture; else a thumbnail's stand in."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)

    url: str = Field(min_length=1, max_length=2000)
    heads: list[str] = Field(min_length=1, max_length=256)
    batch: int = Field(default=8, ge=1, le=64)
    timeout_s: float = Field(default=30.0, gt=0, le=300)
    embedding: bool = False


@dataclass(frozen=True)
class _Enrolled:
    """What a version's document says."""

    declared: Declaration
    probes: Mapping[str, FrameScore]  # by the picture's sha256


class HttpScorer:
    """Asks scorers elsewhere. `picture` gives the golden picture of a hash; no picture leaves without the `redactor`;
    `allowed` are networks besides the public internet."""

    def __init__(
        self,
        picture: Callable[[str], Picture],
        redactor: Redactor,
        allowed: Sequence[str] = (),
        recheck_every_s: float = 60.0,
    ) -> None:
        self._picture = picture
        self._redactor = redactor
        self._outbound = Outbound(allowed)
        self._recheck_every_s = recheck_every_s
        self._checked_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def score(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[FrameScore]:
        """One FrameScore per picture, in order.

        Raises ScorerUnavailable; Invalid for an answer that is not of the contract; Conflict when the scorer is no
        longer the one that was registered.
        """
        enrolled = _enrolled(model)
        with self._lock:
            self._recheck(model, enrolled)
        return self._ask(enrolled.declared, model.heads, pictures)

    def embed(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[tuple[float, ...]]:
        """The embeddings alone; the scorer is asked only if they are its own."""
        if not _enrolled(model).declared.embedding:
            return [thumbnail_embedding(picture) for picture in pictures]
        return [score.embedding for score in self.score(model, pictures)]

    def enrol(self, config: Mapping[str, Any], heads: Sequence[Head], probes: Sequence[str]) -> bytes:
        """The document of a scorer as it answers now to the pictures of these hashes, each asked twice. Raises Invalid,
        also when it does not say the same twice, and ScorerUnavailable."""
        declared = parse(config)
        pictures = [self._picture(sha256) for sha256 in probes]
        first, second = (self._ask(declared, heads, pictures) for _ in range(2))
        for before, now in zip(first, second, strict=True):
            if change := _change(before, now):
                raise Invalid(
                    "scorer-unsteady",
                    f"asked twice for the same picture the scorer gave two answers: {change}",
                    "turn off what is random in it: a version's answers must stay the same",
                )
        document = {
            "contract": CONTRACT,
            "declaration": declared.model_dump(),
            "probes": {sha256: _to_document(score) for sha256, score in zip(probes, first, strict=True)},
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def _recheck(self, model: ModelFiles, enrolled: _Enrolled) -> None:
        if time.monotonic() - self._checked_at.get(model.sha256, -math.inf) < self._recheck_every_s:
            return
        pictures: dict[str, Picture] = {}
        for sha256 in enrolled.probes:
            try:
                pictures[sha256] = self._picture(sha256)
            except BlobNotFound:
                continue  # it was erased; the others still tell
        if not pictures:
            raise Conflict(
                "scorer-unchecked",
                "none of the golden pictures that this scorer was registered with is left to check it by",
                "register the scorer again, as a version of its own",
            )
        found = self._ask(enrolled.declared, model.heads, list(pictures.values()))
        for sha256, now in zip(pictures, found, strict=True):
            if change := _change(enrolled.probes[sha256], now):
                raise Conflict(
                    "scorer-changed",
                    f"the scorer at {enrolled.declared.url} is no longer the one that was registered: {change}",
                    "bring the registered one back, or register what is there now as a version of its own",
                )
        self._checked_at[model.sha256] = time.monotonic()

    def _ask(self, declared: Declaration, heads: Sequence[Head], pictures: Sequence[Picture]) -> list[FrameScore]:
        found: list[FrameScore] = []
        asked = [head for head in heads if head.name in declared.heads]
        for first in range(0, len(pictures), declared.batch):
            batch = [self._redactor.redact(picture) for picture in pictures[first : first + declared.batch]]
            body = {
                "contract": CONTRACT,
                "heads": [head.to_document() for head in asked],
                "pictures": [
                    {"width": picture.width, "height": picture.height, "png_base64": _png(picture)} for picture in batch
                ],
            }
            answer = self._answer(declared, json.dumps(body).encode())
            found += _read(answer, declared, asked, batch)
        return found

    def _answer(self, declared: Declaration, body: bytes) -> bytes:
        """The body of a 200, tried a few times. Raises ScorerUnavailable, Invalid."""
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "longtail"}
        why = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                status, answer = self._outbound.post(
                    declared.url, body, headers, timeout_s=declared.timeout_s, most_bytes=MOST_BYTES
                )
            except Unreachable as error:
                why = str(error)
                continue
            except AddressRefused as error:
                raise Invalid("address-refused", str(error), "give an address of the public internet") from error
            except TooMuch as error:
                raise Invalid(ANSWER_INVALID, str(error), "declare a smaller batch") from error
            if status == 200:
                return answer
            why = f"{declared.url} answered {status}: {answer[:200].decode(errors='replace')}"
            if status not in AGAIN_LATER:
                raise Invalid(ANSWER_INVALID, why, "the scorer must answer 200; redirects are not followed")
        raise ScorerUnavailable(f"{why} ({TRIES} tries)")


def parse(config: Mapping[str, Any]) -> Declaration:
    """The declaration in a version's config. Raises Invalid."""
    try:
        declared = Declaration.model_validate(config)
        check_url(declared.url)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the declaration"
        raise Invalid(
            "invalid-config", f"{place}: {first['msg']}", "docs/bring-your-model.md has the fields"
        ) from error
    except AddressRefused as error:
        raise Invalid("invalid-config", str(error), "give the scorer's whole URL") from error
    return declared


def _enrolled(model: ModelFiles) -> _Enrolled:
    if model.format != ModelFormat.HTTP:
        raise ValueError(f"this scorer opens {ModelFormat.HTTP}, not {model.format}")
    content = model.weights.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != model.sha256:
        raise BlobCorrupt(f"the scorer's document hashes to {found}, not to {model.sha256 or 'what is on record'}")
    document = json.loads(content)
    return _Enrolled(
        parse(document["declaration"]),
        {sha256: _from_document(probe) for sha256, probe in document["probes"].items()},
    )


def _change(before: FrameScore, now: FrameScore) -> str | None:
    for head, answer in before.answers.items():
        if (change := differs(answer, now.answers[head])) is not None:
            return f"head {head!r}, {change}"
        if abs(before.uncertainty[head] - now.uncertainty[head]) > 1e-2 * max(1.0, before.uncertainty[head]):
            return f"head {head!r}, the uncertainty: {now.uncertainty[head]} in place of {before.uncertainty[head]}"
    if max(abs(a - b) for a, b in zip(before.embedding, now.embedding, strict=True)) > 1e-2:
        return "the embedding"
    return None


def _to_document(score: FrameScore) -> dict[str, Any]:
    heads = {
        name: {
            "kind": str(answer.kind),
            "value": dict(answer.value),
            "array_base64": base64.b64encode(answer.array).decode() if answer.array is not None else None,
            "uncertainty": score.uncertainty[name],
        }
        for name, answer in score.answers.items()
    }
    return {"heads": heads, "embedding": list(score.embedding)}


def _from_document(document: Mapping[str, Any]) -> FrameScore:
    heads = document["heads"]
    return FrameScore(
        {n: Answer(Kind(h["kind"]), h["value"], _bytes(h["array_base64"])) for n, h in heads.items()},
        {n: h["uncertainty"] for n, h in heads.items()},
        tuple(document["embedding"]),
    )


def _read(body: bytes, declared: Declaration, heads: Sequence[Head], pictures: Sequence[Picture]) -> list[FrameScore]:
    """The answers in a body. Raises Invalid, naming the picture and head that is wrong."""
    try:
        given = json.loads(body)["answers"]
        if not isinstance(given, list) or len(given) != len(pictures):
            raise ValueError(f"`answers` must be a list of {len(pictures)}, one a picture")
        return [
            _one(place, answer, declared, heads, picture)
            for place, (answer, picture) in enumerate(zip(given, pictures, strict=True))
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        detail = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise Invalid(
            ANSWER_INVALID,
            f"the answer of {declared.url} is not of the contract: {detail}",
            "docs/bring-your-model.md has the contract of an HTTP scorer",
        ) from error


def _one(
    place: int, given: Mapping[str, Any], declared: Declaration, heads: Sequence[Head], picture: Picture
) -> FrameScore:
    answers, uncertainty = {}, {}
    for head in heads:
        told = given["heads"][head.name]
        where = f"picture {place}, head {head.name!r}"
        answer = Answer(head.kind, told["value"], _bytes(told.get("array_base64")))
        try:
            check_prediction(head, answer)
            if answer.array is not None:
                _check_array(head, answer.array, list(answer.value["size"]))
        except AnswerError as error:
            raise ValueError(f"{where}: {error}") from error
        doubt = told["uncertainty"]
        if isinstance(doubt, bool) or not isinstance(doubt, int | float) or not 0 <= doubt < math.inf:
            raise ValueError(f"{where}: an uncertainty is a finite number of 0 or more, not {doubt!r}")
        answers[head.name], uncertainty[head.name] = answer, float(doubt)
    if not declared.embedding:
        return FrameScore(answers, uncertainty, thumbnail_embedding(picture))
    vector = np.asarray(given["embedding"], dtype=np.float64)
    if vector.shape != (DIMENSIONS,) or not abs(float(np.linalg.norm(vector)) - 1) < 1e-3:
        raise ValueError(f"picture {place}: an embedding is {DIMENSIONS} numbers of unit length")
    return FrameScore(answers, uncertainty, tuple(float(value) for value in vector))


def _check_array(head: Head, data: bytes, size: list[int]) -> None:
    array = np.load(io.BytesIO(data), allow_pickle=False)
    dimensions = 2 if head.kind is Kind.DENSE_SCALAR else 3
    if array.dtype != np.float16 or array.ndim != dimensions or list(array.shape[:2]) != size or np.isinf(array).any():
        raise AnswerError(
            f"the array must be float16 of {dimensions} dimensions, the first two {size}, without infinities"
        )


def _bytes(text: str | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"array_base64 is no base64: {error}") from error


def _png(picture: Picture) -> str:
    out = io.BytesIO()
    Image.frombytes("RGB", (picture.width, picture.height), picture.rgb).save(out, "PNG", compress_level=1)
    return base64.b64encode(out.getvalue()).decode()
