"""Manifests of labelled subjects: Parquet with a JSON header, hashed by content and not by how a library wrote it.

One row is one label: a head of a subject, with all that a trainer or a judge needs to use it without the database.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from engine.store.tables.labels import DatasetVersion, GoldenSet

HEADER_KEY = b"longtail.header"
FORMAT = 1

SCHEMA = pa.schema(
    [
        ("subject_id", pa.string()),
        ("split_group", pa.string()),
        ("drive", pa.string()),
        ("clip_id", pa.string()),
        ("clip", pa.string()),
        ("stream", pa.string()),
        ("pts", pa.int64()),
        ("capture_ns", pa.int64()),
        ("picture_sha256", pa.string()),
        ("tags", pa.string()),
        ("head", pa.string()),
        ("label_id", pa.string()),
        ("source", pa.string()),
        ("annotated_classes", pa.list_(pa.string())),
        ("value", pa.string()),
        ("array_sha256", pa.string()),
    ]
)


@dataclass(frozen=True)
class ManifestRow:
    """A label with its subject. `tags` and `value` are JSON; `annotated_classes` is none where all were looked for."""

    subject_id: str
    split_group: str
    drive: str
    clip_id: str
    clip: str
    stream: str
    pts: int
    capture_ns: int
    picture_sha256: str
    tags: str
    head: str
    label_id: str
    source: str
    annotated_classes: list[str] | None
    value: str
    array_sha256: str | None


class ManifestError(ValueError):
    """The bytes are not a manifest, or not the one that they are said to be."""


def canonical(document: Mapping[str, Any]) -> str:
    """JSON with one spelling, for hashing."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_sha256(header: Mapping[str, Any], rows: Sequence[ManifestRow]) -> str:
    """The hash of what the manifest says: header and rows in order, in canonical JSON."""
    digest = hashlib.sha256(canonical(header).encode())
    for row in rows:
        digest.update(b"\n" + canonical(asdict(row)).encode())
    return digest.hexdigest()


def write(header: Mapping[str, Any], rows: Sequence[ManifestRow]) -> bytes:
    """The manifest as a Parquet file."""
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=SCHEMA)
    table = table.replace_schema_metadata({HEADER_KEY: canonical({"format": FORMAT, **header}).encode()})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def read(data: bytes, expected_sha256: str | None = None) -> tuple[dict[str, Any], list[ManifestRow]]:
    """Header and rows. Raises ManifestError when it is no manifest, or its content is not the expected one."""
    try:
        table = pq.read_table(io.BytesIO(data))
        header = dict(json.loads((table.schema.metadata or {})[HEADER_KEY]))
        if not table.schema.equals(SCHEMA, check_metadata=False):
            raise ValueError("its columns are others")
        rows = [ManifestRow(**row) for row in table.to_pylist()]
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as wrong:
        raise ManifestError(f"not a manifest: {wrong}") from wrong
    if header.pop("format", None) != FORMAT:
        raise ManifestError("the manifest is of another format version than this release reads")
    if expected_sha256 is not None and content_sha256(header, rows) != expected_sha256:
        raise ManifestError("the manifest's content does not hash to what its row says")
    return header, rows


def held_sha256(version: DatasetVersion | GoldenSet) -> str:
    """What the content of its manifest hashes to: what was frozen, or what was left of it when rows were erased."""
    return version.remaining_sha256 or version.content_sha256


def by_subject(rows: Sequence[ManifestRow]) -> Iterator[tuple[str, list[ManifestRow]]]:
    """The rows of each subject; rows are in order of subject."""
    for subject, group in groupby(rows, key=lambda row: row.subject_id):
        yield subject, list(group)
