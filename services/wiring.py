"""The adapters that every role shares. A worker that needs torch or Label Studio adds its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.adapters.blobs import LocalBlobStore
from engine.adapters.by_format import CheckByFormat
from engine.adapters.celery_dispatch import CeleryDispatcher
from engine.adapters.local_copies import DataFolderCopies
from engine.adapters.model_checks import SafetensorsCheck, SentCheck
from engine.adapters.onnx.check import OnnxCheck
from engine.adapters.redaction import NoRedaction
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.probe import ChildMediaProbe
from engine.adapters.video.reader import ChildFrameReader
from engine.domain.formats import ModelFormat
from engine.jobs.kinds import QUEUE_OF_KIND
from engine.ports import FrameReader, MediaProbe, ModelCheck, Picture, Redactor
from engine.store.database import connect
from engine.store.unit_of_work import Database
from services.settings import Settings


class NotConfigured(RuntimeError):
    """A setting is missing that this role can't do without."""


class Undispatched:
    """`engine.ports.Dispatcher` where there is no broker: workers find due jobs by their own sweep."""

    def dispatch(self, job_kind: str, job_id: str, priority: int) -> None:
        return None


@dataclass(frozen=True)
class Wiring:
    """What a process works with."""

    settings: Settings
    database: Database
    blobs: LocalBlobStore
    probe: MediaProbe
    reader: FrameReader
    redactor: Redactor
    copies: DataFolderCopies
    model_check: ModelCheck


@contextmanager
def opened(settings: Settings) -> Iterator[Wiring]:
    """Open the shared adapters, and close them at the end. Raises NotConfigured."""
    if settings.database_url is None:
        raise NotConfigured(
            "no database: set LONGTAIL_DATABASE_URL, or start everything on this machine with `longtail up`"
        )
    if settings.blobs.startswith("s3://"):
        raise NotConfigured("blobs on S3 are not built yet: set LONGTAIL_BLOB_ROOT to a folder")
    engine = connect(settings.database_url, pool_size=10)
    pool = MediaPool()
    dispatcher = _dispatcher(settings)
    try:
        yield Wiring(
            settings=settings,
            database=Database(engine, dispatcher),
            blobs=LocalBlobStore(Path(settings.blobs)),
            probe=ChildMediaProbe(pool),
            reader=ChildFrameReader(pool),
            redactor=NoRedaction(),
            copies=DataFolderCopies(settings.data_dir),
            model_check=CheckByFormat(
                {
                    ModelFormat.HYDRANET: SafetensorsCheck(),
                    ModelFormat.ONNX: OnnxCheck(),
                    ModelFormat.PREDICTIONS: SentCheck(),
                }
            ),
        )
    finally:
        pool.close()
        engine.dispose()
        if isinstance(dispatcher, CeleryDispatcher):
            dispatcher.close()


def golden_picture(wiring: Wiring) -> Callable[[str], Picture]:
    """What gives the picture of a blob by its hash."""
    return lambda sha256: wiring.reader.decode_image(wiring.blobs.read(sha256))


def _dispatcher(settings: Settings) -> CeleryDispatcher | Undispatched:
    if settings.redis_url is None:
        return Undispatched()
    return CeleryDispatcher(settings.redis_url, QUEUE_OF_KIND)
