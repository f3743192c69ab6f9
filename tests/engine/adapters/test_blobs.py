from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from engine.adapters.blobs import BlobTooLarge, LocalBlobStore
from engine.ports import BlobCorrupt, BlobNotFound

REPOSITORY = Path(__file__).resolve().parents[3]


def visible_blobs(root: Path) -> list[Path]:
    return [path for path in root.glob("??/??/*") if path.is_file()]


def test_what_is_put_is_read_back_under_its_hash(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path / "deep" / "blobs")
    blob = store.put(b"front camera")
    assert blob.sha256 == hashlib.sha256(b"front camera").hexdigest()
    assert blob.size == 12
    assert store.exists(blob.sha256)
    assert store.read(blob.sha256) == b"front camera"
    with store.open(blob.sha256) as reader:
        reader.seek(6)
        assert reader.read() == b"camera"
    assert store.local_path(blob.sha256).read_bytes() == b"front camera"


def test_the_same_bytes_twice_are_one_blob_and_empty_bytes_are_a_blob(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    assert store.put(b"x") == store.put(b"x")
    assert store.put(b"").size == 0
    assert len(visible_blobs(tmp_path)) == 2
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("name", ["0" * 64, "../../etc/passwd", "", "A" * 64, "0" * 63 + "\n"])
def test_a_blob_that_is_not_there_is_not_found(tmp_path: Path, name: str) -> None:
    store = LocalBlobStore(tmp_path)
    assert not store.exists(name)
    for ask in (store.read, store.open, store.local_path):
        with pytest.raises(BlobNotFound):
            ask(name)


def test_a_corrupt_blob_is_noticed_and_putting_it_again_heals_it(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    blob = store.put(b"pinned picture")
    path = store.local_path(blob.sha256)
    path.chmod(0o644)
    path.write_bytes(b"pinned pictvre")
    with pytest.raises(BlobCorrupt, match="restore"):
        store.read(blob.sha256)
    store.put(b"pinned picture")
    assert store.read(blob.sha256) == b"pinned picture"


def test_a_writer_shows_nothing_before_its_commit(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    writer = store.begin()
    writer.write(b"half ")
    assert visible_blobs(tmp_path) == []
    writer.write(b"whole")
    blob = writer.commit()
    assert store.read(blob.sha256) == b"half whole"
    with pytest.raises(ValueError, match="begin another"):
        writer.write(b"more")
    writer.abort()
    assert store.exists(blob.sha256)


def test_an_aborted_or_failed_writer_leaves_nothing(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    writer = store.begin()
    writer.write(b"x")
    writer.abort()

    def lose_connection() -> None:
        with store.begin() as failing:
            failing.write(b"y")
            raise RuntimeError("lost connection")

    with pytest.raises(RuntimeError, match="lost connection"):
        lose_connection()
    assert visible_blobs(tmp_path) == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_writer_takes_its_limit_and_not_a_byte_more(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    exact = store.begin(max_bytes=10)
    exact.write(b"0123456789")
    assert exact.commit().size == 10
    over = store.begin(max_bytes=10)
    over.write(b"012345678")
    with pytest.raises(BlobTooLarge, match="more than 10 bytes"):
        over.write(b"9a")
    assert list((tmp_path / "temporary").iterdir()) == []


def test_sweeping_removes_old_leftovers_alone(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    blob = store.put(b"kept")
    leftover = tmp_path / "temporary" / "1-killed"
    leftover.write_bytes(b"half")
    old = time.time() - 7200
    os.utime(leftover, (old, old))
    writer = store.begin()
    writer.write(b"in use")
    assert store.sweep_temporary(older_than_s=3600) == 1
    assert not leftover.exists()
    assert store.read(writer.commit().sha256) == b"in use"
    assert store.exists(blob.sha256)


class Pattern:
    """A stream of `size` bytes that is never whole in memory."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._chunk = bytes(range(256)) * 4096

    def read(self, size: int = -1) -> bytes:
        count = min(self._left, len(self._chunk) if size < 0 else min(size, len(self._chunk)))
        self._left -= count
        return self._chunk[:count]


def test_memory_stays_flat_while_64_megabytes_are_put(tmp_path: Path) -> None:
    store = LocalBlobStore(tmp_path)
    tracemalloc.start()
    try:
        blob = store.put(cast(BinaryIO, Pattern(64 << 20)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert blob.size == 64 << 20
    assert peak < 8 << 20


def test_concurrent_puts_of_the_same_bytes_are_safe(tmp_path: Path) -> None:
    contents = [bytes([value]) * 300_000 for value in range(4)]
    failures: list[BaseException] = []

    def put_all(seed: int) -> None:
        try:
            store = LocalBlobStore(tmp_path)
            for content in random.Random(seed).sample(contents * 3, 12):
                assert store.read(store.put(content).sha256) == content
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=put_all, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(visible_blobs(tmp_path)) == 4


PUT_FOREVER = """
import random, sys
from pathlib import Path
from engine.adapters.blobs import LocalBlobStore
store, source = LocalBlobStore(Path(sys.argv[1])), random.Random(int(sys.argv[2]))
print("ready", flush=True)
while True:
    store.put(source.randbytes(source.randrange(1, 3_000_000)))
"""


def test_every_visible_blob_is_whole_after_kills_in_the_middle_of_puts(tmp_path: Path) -> None:
    kills = random.Random(5)
    for round_number in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", PUT_FOREVER, str(tmp_path), str(round_number)],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(kills.uniform(0.02, 0.2))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    blobs = visible_blobs(tmp_path)
    assert len(blobs) > 8
    for path in blobs:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    LocalBlobStore(tmp_path).sweep_temporary(older_than_s=0)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert len(visible_blobs(tmp_path)) == len(blobs)
