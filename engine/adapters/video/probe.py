"""Probes hostile media: `engine.ports.MediaProbe` by a child process."""

from __future__ import annotations

from array import array
from pathlib import Path

from engine.adapters.video.pool import NONSENSE, MediaPool
from engine.ports import MediaRejected, StreamProbe


class ChildMediaProbe:
    """`engine.ports.MediaProbe`. Reads headers and every packet, and decodes the first and the last key frame."""

    def __init__(self, pool: MediaPool | None = None) -> None:
        self._pool = pool or MediaPool()

    def probe(self, path: Path) -> StreamProbe:
        """Raises MediaRejected, MediaPoolBusy."""
        header, content = self._pool.answer({"kind": "probe", "path": str(path.absolute())})
        try:
            timestamps = array("q", content)
            num, den = (int(value) for value in header["time_base"])
            return StreamProbe(
                codec=str(header["codec"]),
                width=int(header["width"]),
                height=int(header["height"]),
                time_base_num=num,
                time_base_den=den,
                pts=tuple(timestamps),
                duration_s=(timestamps[-1] - timestamps[0]) * num / den,
            )
        except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError) as error:
            raise MediaRejected(NONSENSE) from error
