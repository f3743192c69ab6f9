"""Manifests say the same after any journey, and what is no manifest is said not to be one."""

from __future__ import annotations

import io
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.store.manifests import (
    HEADER_KEY,
    ManifestError,
    ManifestRow,
    by_subject,
    canonical,
    content_sha256,
    read,
    write,
)

HEADER = {"line": "roads", "split": "pool", "ontology": {"name": "roads", "version": 1}}


def row(subject: str, head: str = "road", **changes: object) -> ManifestRow:
    known = ManifestRow(
        subject_id=subject,
        split_group="g",
        drive="d",
        clip_id="c",
        clip="clip",
        stream="front",
        pts=9_000_000_000,
        capture_ns=1_750_000_000_000_000_001,
        picture_sha256="a" * 64,
        tags='{"weather":"fog"}',
        head=head,
        label_id="l",
        source="human",
        annotated_classes=["road"],
        value='{"choice":"Öl"}',
        array_sha256=None,
    )
    return replace(known, **changes)  # type: ignore[arg-type]


ROWS = [row("a"), row("a", "light", annotated_classes=None), row("b", array_sha256="b" * 64, annotated_classes=[])]


def test_it_says_the_same_after_a_journey() -> None:
    data = write(HEADER, ROWS)
    header, rows = read(data, content_sha256(HEADER, ROWS))
    assert header == HEADER
    assert rows == ROWS  # none and empty annotated classes are not the same thing
    assert write(HEADER, ROWS) == data


def test_the_hash_is_of_the_content_and_not_of_the_file() -> None:
    table = pq.read_table(io.BytesIO(write(HEADER, ROWS)))
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", row_group_size=1)
    assert read(sink.getvalue(), content_sha256(HEADER, ROWS))[1] == ROWS


@pytest.mark.parametrize(
    "changed",
    [
        (HEADER, ROWS[1:]),
        (HEADER, [ROWS[1], ROWS[0], ROWS[2]]),
        (HEADER, [replace(ROWS[0], value="{}"), *ROWS[1:]]),
        (HEADER, [replace(ROWS[0], annotated_classes=None), *ROWS[1:]]),
        ({**HEADER, "split": "golden"}, ROWS),
    ],
)
def test_every_change_changes_the_hash(changed: tuple[dict[str, object], list[ManifestRow]]) -> None:
    assert content_sha256(*changed) != content_sha256(HEADER, ROWS)
    with pytest.raises(ManifestError, match="does not hash"):
        read(write(*changed), content_sha256(HEADER, ROWS))


def test_a_damaged_manifest_is_never_taken_for_a_whole_one() -> None:
    data, sha256, chance = write(HEADER, ROWS), content_sha256(HEADER, ROWS), random.Random(1)
    for _ in range(300):
        damaged = bytearray(data)
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        else:
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        try:
            header, rows = read(bytes(damaged), sha256)
        except ManifestError:
            continue
        assert (header, rows) == (HEADER, ROWS)  # the bit was one that says nothing


def test_what_is_no_manifest_is_refused() -> None:
    other = pa.table({"a": [1]})
    sink = io.BytesIO()
    pq.write_table(other, sink)
    future = io.BytesIO()
    known = pq.read_table(io.BytesIO(write(HEADER, ROWS)))
    pq.write_table(known.replace_schema_metadata({HEADER_KEY: canonical({"format": 2}).encode()}), future)
    headless = io.BytesIO()
    pq.write_table(known.replace_schema_metadata({HEADER_KEY: b"[]"}), headless)
    unnumbered = io.BytesIO()
    pq.write_table(known.replace_schema_metadata({HEADER_KEY: b"{}"}), unnumbered)
    for data in (b"", b"PAR1", sink.getvalue(), future.getvalue(), headless.getvalue(), unnumbered.getvalue()):
        with pytest.raises(ManifestError):
            read(data)


def test_rows_are_grouped_by_subject_in_order() -> None:
    assert [(subject, len(rows)) for subject, rows in by_subject(ROWS)] == [("a", 2), ("b", 1)]


def test_canonical_json_has_one_spelling_and_no_nan() -> None:
    assert canonical({"b": 1, "a": [1.0, None]}) == '{"a":[1.0,null],"b":1}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical({"a": float("nan")})
