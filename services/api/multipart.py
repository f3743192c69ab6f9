"""Takes multipart/form-data off the wire: files go to the blob store while they are hashed, never whole in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from email.message import Message
from types import TracebackType
from typing import Self

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser

from engine.adapters.blobs import BlobTooLarge, BlobWriter, LocalBlobStore
from services.api.body_limit import DRAIN_BYTES
from services.api.errors import HttpRefusal

BATCH_BYTES = 1 << 20
MAX_DOCUMENT_BYTES = 1 << 20
MAX_PARTS = 80
# To join large chunks takes longer than to hash them; to parse a multitude of small ones apart takes longer still.
MANY_CHUNKS = 64


class Form:
    """The parts of one body: small documents in memory, files as uncommitted blobs, dropped when `with` ends.

    Parts may come in any order; file names and part types are ignored. Raises HttpRefusal, BlobTooLarge.
    """

    def __init__(
        self, boundary: bytes, blobs: LocalBlobStore, is_document: Callable[[str], bool], max_bytes: int
    ) -> None:
        self.documents: dict[str, bytearray] = {}
        self.files: dict[str, BlobWriter] = {}
        self._blobs = blobs
        self._is_document = is_document
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._header = (bytearray(), bytearray())
        self._disposition = b""
        self._document: bytearray | None = None
        self._file: BlobWriter | None = None
        self._ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._part_begin,
                "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_finished,
                "on_part_data": self._part_data,
                "on_end": self._end,
            },
        )

    def feed(self, chunks: Sequence[bytes]) -> None:
        """The next bytes of the body, in order."""
        self._left -= sum(map(len, chunks))
        if self._left < 0:
            raise BlobTooLarge(f"the request has more than {self._max_bytes} bytes")
        if len(chunks) > MANY_CHUNKS:
            chunks = [b"".join(chunks)]
        try:
            for chunk in chunks:
                self._parser.write(chunk)
        except MultipartParseError as error:
            raise HttpRefusal(
                400,
                "bad-multipart",
                f"the body is not multipart/form-data: {error}",
                "let an HTTP library encode the form",
            ) from error

    def finish(self) -> None:
        """The body is over. Raises HttpRefusal when the form is not."""
        if not self._ended:
            raise HttpRefusal(
                400,
                "bad-multipart",
                "the body ends before the form does",
                "send the whole form, its last boundary included",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self.files.values():
            file.abort()

    def _part_begin(self) -> None:
        self._disposition = b""
        self._header = (bytearray(), bytearray())

    def _header_end(self) -> None:
        if self._header[0].lower() == b"content-disposition":
            self._disposition = bytes(self._header[1])
        self._header = (bytearray(), bytearray())

    def _headers_finished(self) -> None:
        name = _parameter(self._disposition, "name")
        if name is None:
            raise HttpRefusal(400, "bad-multipart", "a part of the form has no name", "name every part of the form")
        if name in self.documents or name in self.files:
            raise HttpRefusal(400, "part-twice", f"the form has two parts named {name!r}", "send each part once")
        if len(self.documents) + len(self.files) >= MAX_PARTS:
            raise HttpRefusal(400, "too-many-parts", f"the form has more than {MAX_PARTS} parts", "send fewer parts")
        self._document = self._file = None
        if self._is_document(name):
            self._document = self.documents[name] = bytearray()
        else:
            self._file = self.files[name] = self._blobs.begin()

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._file is not None:
            self._file.write(memoryview(data)[start:end])
        elif self._document is not None:
            if len(self._document) + end - start > MAX_DOCUMENT_BYTES:
                raise HttpRefusal(
                    413,
                    "document-too-large",
                    f"a document of the form has more than {MAX_DOCUMENT_BYTES} bytes",
                    "send less",
                )
            self._document.extend(data[start:end])

    def _end(self) -> None:
        self._ended = True


@asynccontextmanager
async def received(
    request: Request, blobs: LocalBlobStore, is_document: Callable[[str], bool], max_bytes: int
) -> AsyncIterator[Form]:
    """The request's form, whole. Disk work happens in threads, in batches; the client is slowed to our pace."""
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_bytes:
        raise BlobTooLarge(f"the request has {announced} bytes, at most {max_bytes} are taken")
    with Form(_boundary(request), blobs, is_document, max_bytes) as form:
        stream = request.stream()
        batch: list[bytes] = []
        waiting = 0
        try:
            async for chunk in stream:
                batch.append(chunk)
                waiting += len(chunk)
                if waiting >= BATCH_BYTES:
                    await run_in_threadpool(form.feed, batch)
                    batch, waiting = [], 0
            await run_in_threadpool(form.feed, batch)
            form.finish()
        except (HttpRefusal, BlobTooLarge):
            drained = 0
            async for chunk in stream:
                drained += len(chunk)
                if drained > DRAIN_BYTES:
                    break
            raise
        yield form


def _boundary(request: Request) -> bytes:
    header = request.headers.get("content-type", "")
    boundary = _parameter(header.encode("latin-1"), "boundary")
    if not header.lower().startswith("multipart/form-data") or not boundary or len(boundary) > 200:
        raise HttpRefusal(
            415,
            "not-multipart",
            f"the body must be multipart/form-data with a boundary, not {header or 'without a content type'!r}",
            "send the manifest and the files as parts of one form",
        )
    return boundary.encode("latin-1", "replace")


def _parameter(header: bytes, name: str) -> str | None:
    """A parameter of a header such as `form-data; name="manifest"`."""
    message = Message()
    message["content-type"] = header.decode("latin-1")
    value = message.get_param(name)
    return value if isinstance(value, str) else None
