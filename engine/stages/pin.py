"""Pin: a frame's picture becomes a blob of its own, so that labels never depend on a decoder's version."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import select, update

from engine.ports import BlobStore, FrameReader
from engine.store.blobs import register, sha256_of
from engine.store.membership import among
from engine.store.tables.recordings import Frame, Stream
from engine.store.unit_of_work import Database


def pin(
    database: Database, blobs: BlobStore, reader: FrameReader, frame_ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, str]:
    """The sha256 of each frame's PNG, decoded and stored where it was not yet.

    No transaction is open while frames are decoded. Raises MediaRejected when a clip no longer decodes.
    """
    with database.read() as session:
        frames = session.scalars(select(Frame).where(Frame.id == among(frame_ids))).all()
        pinned = {f.id: sha256_of(session, f.picture_blob_id) for f in frames if f.picture_blob_id}
        missing: dict[uuid.UUID, list[Frame]] = defaultdict(list)
        for frame in frames:
            if frame.id not in pinned:
                missing[frame.stream_id].append(frame)
        streams = {s.id: s for s in session.scalars(select(Stream).where(Stream.id == among(missing)))}
        sources = {stream.id: sha256_of(session, stream.blob_id) for stream in streams.values()}
    for stream_id, wanted in missing.items():
        by_pts = {frame.pts: frame for frame in wanted}
        stored = {
            by_pts[picture.pts].id: blobs.put(reader.encode_png(picture))
            for picture in reader.frames(blobs.local_path(sources[stream_id]), sorted(by_pts))
        }
        with database.unit() as unit:
            for frame_id, blob in stored.items():
                row = register(unit.session, streams[stream_id].project_id, blob, "image/png")
                unit.session.execute(
                    update(Frame)
                    .where(Frame.id == frame_id, Frame.picture_blob_id.is_(None))
                    .values(picture_blob_id=row.id)
                )
            unit.commit()
        pinned.update({frame_id: blob.sha256 for frame_id, blob in stored.items()})
    return pinned
