"""Thousands of damaged files through probe and decoder: each is read or refused, within the limits."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from engine.adapters.video.limits import MediaLimits
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.probe import ChildMediaProbe
from engine.adapters.video.reader import ChildFrameReader
from engine.ports import MediaRejected
from tests.engine.adapters.video.mutated_media import make_corpus, mutated

LIMITS = MediaLimits(wall_s=5.0, cpu_s=10, memory_bytes=1 << 30, requests_per_child=200)
SLACK_S = 3.0  # a child may have to be started, on a machine that others share


@pytest.fixture
def corpus(tmp_path: Path) -> list[bytes]:
    return make_corpus(tmp_path)


@pytest.fixture
def pool() -> Iterator[MediaPool]:
    pool = MediaPool(LIMITS, size=2)
    yield pool
    pool.close()


class MemoryWatch:
    """The most address space that any child had, read from the kernel's own high-water mark while they live."""

    def __init__(self) -> None:
        self.most_bytes, self.seen = 0, set[int]()
        self._before = {child.pid for child in psutil.Process().children()}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            for child in psutil.Process().children():
                if child.pid in self._before:
                    continue
                try:
                    status = Path(f"/proc/{child.pid}/status").read_text()
                    if "engine.adapters.video.child" not in " ".join(child.cmdline()):
                        continue
                except (OSError, psutil.NoSuchProcess):
                    continue
                self.seen.add(child.pid)
                peaks = [line.split()[1] for line in status.splitlines() if line.startswith("VmPeak:")]
                self.most_bytes = max(self.most_bytes, *(int(peak) * 1024 for peak in peaks), 0)


def look(pool: MediaPool, path: Path) -> str:
    """Probe the file and read three of its frames; says what came of it."""
    begun = time.monotonic()
    try:
        found = ChildMediaProbe(pool).probe(path)
        assert list(found.pts) == sorted(set(found.pts))
        assert 0 < found.width * found.height <= LIMITS.pixels
        wanted = sorted({found.pts[0], found.pts[len(found.pts) // 2], found.pts[-1]})
        pictures = list(ChildFrameReader(pool).frames(path, wanted))
        assert [picture.pts for picture in pictures] == wanted
        outcome = "read"
    except MediaRejected as refused:
        said = str(refused)
        outcome = "ended" if "ended its decoder" in said else "stuck" if "took more" in said else "refused"
    assert time.monotonic() - begun < 2 * LIMITS.wall_s + SLACK_S, path
    return outcome


def through(pool: MediaPool, corpus: list[bytes], numbers: range, folder: Path) -> Counter[str]:
    """What came of these mutations, by two threads at once."""

    def one(number: int) -> str:
        path = folder / f"mutation-{number}"
        path.write_bytes(mutated(corpus, number))
        try:
            return look(pool, path)
        except Exception as error:
            raise AssertionError(f"mutation {number}") from error
        finally:
            path.unlink()

    whole = [folder / f"whole-{number}" for number in range(len(corpus))]
    for path, content in zip(whole, corpus, strict=True):
        path.write_bytes(content)
    assert [look(pool, path) for path in whole] == ["read"] * len(whole)
    with MemoryWatch() as memory, ThreadPoolExecutor(2) as threads:
        outcomes = Counter(threads.map(one, numbers))
    assert 0 < memory.most_bytes <= LIMITS.memory_bytes
    # Whatever the mutations did to the children, the next to ask are served, whichever child they get.
    assert [look(pool, path) for path in whole * 2] == ["read"] * len(whole) * 2
    return outcomes


def test_mutations_are_the_same_whenever_they_are_made_and_differ_from_each_other(corpus: list[bytes]) -> None:
    made = [mutated(corpus, number) for number in range(300)]
    assert made == [mutated(corpus, number) for number in range(300)]
    assert len(set(made)) > 280
    assert sum(content in corpus for content in made) < 10


def test_damaged_files_are_read_or_refused(pool: MediaPool, corpus: list[bytes], tmp_path: Path) -> None:
    outcomes = through(pool, corpus, range(150), tmp_path)
    assert outcomes["refused"] >= 50
    assert outcomes["read"] >= 10


def test_a_damaged_file_gets_the_same_verdict_each_time(pool: MediaPool, corpus: list[bytes], tmp_path: Path) -> None:
    path, probe = tmp_path / "mutation", ChildMediaProbe(pool)

    def verdict() -> object:
        try:
            return probe.probe(path)
        except MediaRejected as refused:
            return str(refused)

    # Among these are files whose damage a decoder with several frames at work tells of by chance.
    for number in (15, 26, 40, 183, 467, 614, 736, 1153, 1461, 1573, 1825, 1923, 1993):
        path.write_bytes(mutated(corpus, number))
        assert len({verdict() for _ in range(6)}) == 1, number


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_thousand_damaged_files_are_read_or_refused(pool: MediaPool, corpus: list[bytes], tmp_path: Path) -> None:
    outcomes = through(pool, corpus, range(2000), tmp_path)
    print(dict(outcomes))
    assert outcomes["refused"] >= 700
    assert outcomes["read"] >= 150
