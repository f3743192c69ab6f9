"""Pin: a frame's picture becomes a blob of its own, so that labels never depend on a decoder's version."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import select, update

from engine.ports import BlobStore, FrameReader
from engine.stages.discard import discard
from engine.store.blobs import register, sha256_of
from engine.store.living import hold_clips
from engine.store.membership import among
from engine.store.tables.recordings import Clip, Frame, Stream
from engine.store.unit_of_work import Database


def pin(
    database: Database, blobs: BlobStore, reader: FrameReader, frame_ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, str]:
    """The sha256 of each frame's PNG, decoded and stored where it was not yet; a frame that was erased has none.

    No transaction is open while frames are decoded. Raises MediaRejected when a clip no longer decodes.
    """
    with database.read() as session:
        frames = session.scalars(
            select(Frame)
            .join(Clip, Clip.id == Frame.clip_id)
            .where(Frame.id == among(frame_ids), Clip.state != "erased")
        ).all()
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
            living = hold_clips(unit.session, {frame.clip_id for frame in wanted})
            for frame_id, blob in stored.items() if living else ():
                row = register(unit.session, streams[stream_id].project_id, blob, "image/png")
                unit.session.execute(
                    update(Frame)
                    .where(Frame.id == frame_id, Frame.picture_blob_id.is_(None))
                    .values(picture_blob_id=row.id)
                )
            unit.commit()
        if not living:
            discard(database, blobs, [blob.sha256 for blob in stored.values()])
            continue
        pinned.update({frame_id: blob.sha256 for frame_id, blob in stored.items()})
    return pinned
