"""Pinned pictures outlive the video that they came from."""

from __future__ import annotations

import uuid

import pytest
from loop_fixtures import Loop

from engine.ports import BlobNotFound
from engine.stages.pin import pin
from engine.store.blobs import sha256_of
from engine.store.tables.recordings import Frame, Stream, Subject


def drop_video(loop: Loop, clip_id: uuid.UUID) -> None:
    with loop.database.read() as session:
        (stream,) = loop.all(Stream, Stream.clip_id == clip_id)
        loop.blobs.local_path(sha256_of(session, stream.blob_id)).unlink()


def frames_of(loop: Loop, clip_id: uuid.UUID) -> list[uuid.UUID]:
    return [subject.id for subject in loop.all(Subject, Subject.clip_id == clip_id)]


def test_each_frame_is_pinned_as_its_own_picture(loop: Loop) -> None:
    first, second = loop.labelled_drives([1, 2])
    wanted = frames_of(loop, first) + frames_of(loop, second)
    pinned = pin(loop.database, loop.blobs, loop.reader, wanted)
    assert set(pinned) == set(wanted)
    assert len(set(pinned.values())) == 4
    for frame in loop.all(Frame):
        clip, pts = loop.scenes[frame.clip_id], frame.pts
        shown = loop.reader.decode_image(loop.blobs.read(pinned[frame.id]))
        near = [sum(abs(a - b) for a, b in zip(shown.rgb, clip.picture(at).rgb, strict=True)) for at in (0, 1000)]
        assert near.index(min(near)) == (0, 1000).index(pts)  # it is the frame of its PTS


def test_a_pinned_frame_needs_its_video_no_more(loop: Loop) -> None:
    (clip,) = loop.labelled_drives([1])
    wanted = frames_of(loop, clip)
    before = pin(loop.database, loop.blobs, loop.reader, wanted[:1])
    drop_video(loop, clip)
    assert pin(loop.database, loop.blobs, loop.reader, wanted[:1]) == before
    with pytest.raises(BlobNotFound):
        pin(loop.database, loop.blobs, loop.reader, wanted)
    assert sum(frame.picture_blob_id is not None for frame in loop.all(Frame)) == 1


def test_nothing_is_pinned_for_nobody(loop: Loop) -> None:
    assert pin(loop.database, loop.blobs, loop.reader, []) == {}
