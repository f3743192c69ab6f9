from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.adapters.video.limits import MediaLimits
from engine.adapters.video.pool import MediaChildFailed, MediaPool, MediaPoolBusy
from engine.adapters.video.probe import ChildMediaProbe
from engine.adapters.video.reader import ChildFrameReader
from engine.ports import MediaRejected

WriteVideo = Callable[..., Path]
REPOSITORY = Path(__file__).resolve().parents[4]


def children(of: int | None = None) -> list[psutil.Process]:
    found = [child for child in psutil.Process(of).children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in found if "engine.adapters.video.child" in " ".join(child.cmdline())]


def started_by(before: list[psutil.Process]) -> list[psutil.Process]:
    return [child for child in children() if child not in before]


def gone(pid: int, within_s: float = 5.0) -> bool:
    limit = time.monotonic() + within_s
    while time.monotonic() < limit:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_a_child_serves_many_requests_and_is_then_replaced(write_video: WriteVideo) -> None:
    path, before = write_video(range(5)), children()
    pool = MediaPool(MediaLimits(requests_per_child=3), size=1)
    probe = ChildMediaProbe(pool)
    pids = []
    for _ in range(7):
        probe.probe(path)
        pids.append([child.pid for child in started_by(before)])
    pool.close()
    assert pids[0] == pids[1]
    assert len({tuple(each) for each in pids if each}) >= 2
    assert started_by(before) == []


def test_a_child_that_is_too_old_is_replaced(write_video: WriteVideo) -> None:
    path, before = write_video(range(5)), children()
    pool = MediaPool(MediaLimits(child_age_s=0.0), size=1)
    ChildMediaProbe(pool).probe(path)
    assert started_by(before) == []
    ChildMediaProbe(pool).probe(path)
    pool.close()


def test_a_stuck_child_costs_its_request_alone(write_video: WriteVideo) -> None:
    path, before = write_video(range(5)), children()
    pool = MediaPool(MediaLimits(wall_s=2.0), size=1)
    probe = ChildMediaProbe(pool)
    probe.probe(path)
    [child] = started_by(before)
    child.suspend()
    with pytest.raises(MediaRejected, match="took more than 2 s"):
        probe.probe(path)
    assert gone(child.pid)
    assert len(probe.probe(path).pts) == 5
    pool.close()


def test_a_child_that_dies_costs_its_request_alone(write_video: WriteVideo) -> None:
    path, before = write_video(range(60), size=(640, 480)), children()
    pool = MediaPool(MediaLimits(), size=1)
    reader = ChildFrameReader(pool)
    frames = iter(reader.frames(path, range(60)))
    assert next(frames).pts == 0
    [child] = started_by(before)
    child.kill()
    with pytest.raises(MediaRejected, match="signal 9"):
        list(frames)
    assert len(list(reader.frames(path, range(60)))) == 60
    pool.close()


def test_a_child_that_died_between_requests_costs_nothing(write_video: WriteVideo) -> None:
    path, before = write_video(range(5)), children()
    pool = MediaPool(MediaLimits(), size=1)
    probe = ChildMediaProbe(pool)
    probe.probe(path)
    [child] = started_by(before)
    child.kill()
    assert gone(child.pid)
    assert len(probe.probe(path).pts) == 5
    pool.close()


def test_a_child_outlives_the_thread_that_first_asked_for_it(write_video: WriteVideo) -> None:
    path, before = write_video(range(5)), children()
    pool = MediaPool(MediaLimits(), size=1)
    thread = threading.Thread(target=ChildMediaProbe(pool).probe, args=(path,))
    thread.start()
    thread.join()
    [first] = started_by(before)
    time.sleep(0.1)
    ChildMediaProbe(pool).probe(path)
    assert started_by(before) == [first]
    pool.close()


def test_threads_share_a_pool_and_it_stays_within_its_size(write_video: WriteVideo) -> None:
    path, before = write_video(range(20)), children()
    pool = MediaPool(MediaLimits(), size=2)
    reader, most, results = ChildFrameReader(pool), [0], []

    def read() -> None:
        for _ in range(4):
            results.append([picture.pts for picture in reader.frames(path, range(20))])
            most[0] = max(most[0], len(started_by(before)))

    threads = [threading.Thread(target=read) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pool.close()
    assert results == [list(range(20))] * 20
    assert most[0] <= 2


def test_a_pool_whose_children_are_all_in_use_says_so(write_video: WriteVideo) -> None:
    path = write_video(range(60))
    pool = MediaPool(MediaLimits(wall_s=1.5), size=1)
    frames = iter(ChildFrameReader(pool).frames(path, range(60)))
    assert next(frames).pts == 0
    with pytest.raises(MediaPoolBusy, match="try again later"):
        ChildMediaProbe(pool).probe(path)
    assert len(list(frames)) == 59
    pool.close()


def test_a_decoder_that_wants_too_much_memory_is_refused_it(write_video: WriteVideo) -> None:
    path = write_video(range(1), size=(4096, 4096))
    plenty = MediaPool(MediaLimits(), size=1)
    assert len(list(ChildFrameReader(plenty).frames(path, range(1)))) == 1
    plenty.close()
    pool = MediaPool(MediaLimits(memory_bytes=300 << 20), size=1)
    with pytest.raises(MediaRejected):
        list(ChildFrameReader(pool).frames(path, range(1)))
    assert len(ChildMediaProbe(pool).probe(write_video(range(4), name="small.mp4")).pts) == 4
    pool.close()


PARENT = """
import sys, time
from pathlib import Path
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.probe import ChildMediaProbe
ChildMediaProbe(pool := MediaPool()).probe(Path(sys.argv[1]))
print("ready", flush=True)
time.sleep(60)
"""


def test_a_child_dies_with_its_parent_even_while_it_is_stopped(write_video: WriteVideo) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(write_video(range(5)))], cwd=REPOSITORY, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    [child] = children(parent.pid)
    child.suspend()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(child.pid)


FORKING = """
import os, sys
from pathlib import Path
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.probe import ChildMediaProbe
path = Path(sys.argv[1])
pool = MediaPool()
probe = ChildMediaProbe(pool)
expected = probe.probe(path)
before = [child._process.pid for child in pool._idle]
pid = os.fork()
if pid == 0:
    same = probe.probe(path) == expected and [child._process.pid for child in pool._idle] != before
    pool.close()
    os._exit(0 if same else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert probe.probe(path) == expected
assert [child._process.pid for child in pool._idle] == before
"""


def test_a_forked_process_starts_children_of_its_own(write_video: WriteVideo) -> None:
    path = str(write_video(range(5)))
    command = [sys.executable, "-W", "error", "-c", FORKING, path]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""


SANDBOXED = """
import os, socket, sys
from engine.adapters.video import sandbox
sandbox.enter(os.getppid(), 2 << 30)
def refused(action):
    try:
        action()
    except OSError:
        return True
    return False
def write():
    with open(sys.argv[1], "w") as file:
        file.write("x")
def many():
    files = [open(os.devnull) for _ in range(64)]
print(refused(lambda: socket.socket()), refused(lambda: os.execv("/bin/true", ["true"])), refused(write), refused(many),
      refused(lambda: os.kill(os.getppid(), 0)), refused(lambda: os.unlink(sys.argv[1])))
try:
    bytearray(3 << 30)
except MemoryError:
    print("no memory")
"""


def test_the_sandbox_takes_away_network_programs_writing_and_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SANDBOXED, str(tmp_path / "written")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=60, text=True)
    assert done.stdout.splitlines() == ["True True True True True True", "no memory"], done.stderr


SPINNING = """
import os
from engine.adapters.video import sandbox
sandbox.enter(os.getppid(), 2 << 30)
sandbox.allow_cpu(0)
while True:
    pass
"""


def test_a_request_may_use_so_much_cpu_and_no_more() -> None:
    done = subprocess.run([sys.executable, "-c", SPINNING], cwd=REPOSITORY, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGXCPU


def test_a_child_that_can_not_start_is_our_failure_and_not_the_media_s(write_video: WriteVideo) -> None:
    path = write_video(range(5))
    pool = MediaPool(MediaLimits(memory_bytes=10**30), size=1)
    with pytest.raises(MediaChildFailed, match="did not start"):
        ChildMediaProbe(pool).probe(path)
    pool.close()


def test_a_child_without_its_parent_ends_at_once() -> None:
    command = [sys.executable, "-m", "engine.adapters.video.child", str(os.getpid() + 1), MediaLimits().to_json()]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, timeout=60, input=b"")
    assert (done.returncode, done.stdout) == (0, b"")
