"""Content-addressed blobs on a local disk: `root/ab/cd/abcd…`, each file named by the sha256 of its bytes.

A blob becomes visible by one rename, after its bytes are on disk, so a reader never meets half of one, wherever the
writer was killed. A put returns when the folder entries that lead to the blob are on disk too.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import time
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from engine.ports import BlobCorrupt, BlobNotFound, StoredBlob

CHUNK_BYTES = 1 << 20
TEMPORARY_FOLDER = "temporary"
_SHA256 = re.compile(r"[0-9a-f]{64}")


class BlobTooLarge(ValueError):
    """More bytes were written than the writer may take."""


class LocalBlobStore:
    """`engine.ports.BlobStore` in a folder of one file system. Threads and processes may share the folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._temporary = self._root / TEMPORARY_FOLDER
        # Folders whose own entry this store has synced. Finding that one exists proves nothing about the disk: another
        # process may have made it a moment ago and not have synced its parent yet.
        self._durable: set[Path] = set()
        self._make_durable(self._temporary)

    def begin(self, max_bytes: int | None = None) -> BlobWriter:
        """A writer for bytes that come in chunks; nothing is visible before its `commit`."""
        return BlobWriter(self, max_bytes)

    def put(self, source: BinaryIO | bytes) -> StoredBlob:
        """Stream `source` in while hashing, in constant memory; durable on return; the same bytes twice are one."""
        stream = io.BytesIO(source) if isinstance(source, bytes) else source
        with self.begin() as writer:
            while chunk := stream.read(CHUNK_BYTES):
                writer.write(chunk)
            return writer.commit()

    def read(self, sha256: str) -> bytes:
        """The whole blob, verified. Raises BlobNotFound, BlobCorrupt."""
        with self.open(sha256) as blob:
            content = blob.read()
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise BlobCorrupt(
                f"blob {sha256} holds bytes that hash to {found}: restore {self._path(sha256)} from a backup, "
                "or put the original bytes again"
            )
        return content

    def open(self, sha256: str) -> BinaryIO:
        """A seekable reader, not verified. Raises BlobNotFound."""
        return self.local_path(sha256).open("rb")

    def local_path(self, sha256: str) -> Path:
        """Where the blob lies; for reading only. Raises BlobNotFound."""
        path = self._path(sha256)
        if not path.is_file():
            raise BlobNotFound(f"no blob {sha256} in {self._root}")
        return path

    def exists(self, sha256: str) -> bool:
        return _SHA256.fullmatch(sha256) is not None and self._path(sha256).is_file()

    def remove(self, sha256: str, settled_s: float = 0.0) -> bool:
        """Remove a blob that no row points to any more; gone is gone.

        False where it was put again less than `settled_s` seconds ago. Putting gives a blob another date even where its
        bytes were there already.
        """
        path = self._path(sha256)
        try:
            if path.stat().st_mtime > time.time() - settled_s:
                return False
            path.unlink()
        except FileNotFoundError:
            return True
        _sync_folder(path.parent)
        return True

    def sweep_temporary(self, older_than_s: float) -> int:
        """Remove what killed writers left behind; returns how many files. Younger files may still be in use."""
        limit = time.time() - older_than_s
        swept = 0
        for path in self._temporary.iterdir():
            try:
                if path.stat().st_mtime <= limit:
                    path.unlink()
                    swept += 1
            except FileNotFoundError:
                continue  # committed, aborted or swept by another process in the meantime
        return swept

    def _path(self, sha256: str) -> Path:
        if _SHA256.fullmatch(sha256) is None:
            raise BlobNotFound(f"{sha256!r} is no sha256: a blob's name is 64 digits of lower-case hex")
        return self._root / sha256[:2] / sha256[2:4] / sha256

    def _make_durable(self, folder: Path) -> None:
        """Make `folder` and its parents up to the root, and sync the entry of each in the folder above it."""
        if folder in self._durable:
            return
        if folder != self._root:
            self._make_durable(folder.parent)
            folder.mkdir(exist_ok=True)
            _sync_folder(folder.parent)
        else:
            missing = [folder, *folder.parents]
            folder.mkdir(parents=True, exist_ok=True)
            for path in missing[1:]:
                try:
                    _sync_folder(path)
                except PermissionError:
                    break  # not ours, so we did not make anything in it
        self._durable.add(folder)

    def _publish(self, temporary: Path, sha256: str) -> None:
        """Give a synced temporary file its name. Replacing is safe (the bytes are equal) and heals a corrupt blob."""
        path = self._path(sha256)
        self._make_durable(path.parent)
        temporary.replace(path)
        _sync_folder(path.parent)


class BlobWriter:
    """One blob in the making, hashed while it is written. Leaving `with` without a commit aborts it."""

    def __init__(self, store: LocalBlobStore, max_bytes: int | None = None) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._size = 0
        self._path = store._temporary / f"{os.getpid()}-{secrets.token_hex(8)}"
        self._file: BinaryIO | None = self._path.open("xb")

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    @property
    def sha256(self) -> str:
        """The hash (hex) of the bytes written so far."""
        return self._hash.hexdigest()

    @property
    def path(self) -> Path:
        """Where the bytes written so far lie, to be looked into before they are committed."""
        self._opened().flush()
        return self._path

    def write(self, chunk: bytes | memoryview) -> int:
        """Raises BlobTooLarge, and aborts, when the blob would pass `max_bytes`."""
        file = self._opened()
        if self._max_bytes is not None and self._size + len(chunk) > self._max_bytes:
            self.abort()
            raise BlobTooLarge(f"more than {self._max_bytes} bytes: send a shorter clip, or raise the limit")
        file.write(chunk)
        self._hash.update(chunk)
        self._size += len(chunk)
        return len(chunk)

    def commit(self) -> StoredBlob:
        """Durable and visible on return."""
        file = self._opened()
        sha256 = self._hash.hexdigest()
        try:
            file.flush()
            os.fchmod(file.fileno(), 0o444)  # a blob is never changed
            os.utime(file.fileno())  # its date is that of the last time it was put: see `remove`
            os.fsync(file.fileno())
            file.close()
            self._store._publish(self._path, sha256)
        except BaseException:
            self.abort()
            raise
        self._file = None
        return StoredBlob(sha256, self._size)

    def withdraw(self) -> None:
        """Remove what was committed, which no row points to. Does nothing before a commit."""
        if self._file is None:
            self._store.remove(self._hash.hexdigest())

    def abort(self) -> None:
        """Drop what was written; does nothing after a commit or an abort."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _opened(self) -> BinaryIO:
        if self._file is None:
            raise ValueError("this writer was committed or aborted: begin another")
        return self._file


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
