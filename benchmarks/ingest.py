"""How much of a bare upload handler's speed ingest keeps, and whether large clips cost the server more memory.

`python -m benchmarks.ingest [--quick]`. Both servers are up at once and take turns, asked by several clients that send
the same bytes; PostgreSQL is a real one with a production's settings. README.md says what the figures mean.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.clip_bodies import ClipMaker, make_clips
from benchmarks.outcome import conclude, show
from benchmarks.uploads import Client, Speed, Target, most_memory, send_for, send_times
from services.local.folders import runtime_folder
from services.local.ports import chosen_port
from services.local.roles import API, POSTGRES
from services.local.stack import start_local
from services.settings import Settings

MIB = 1 << 20
CLIENTS = 4
START_S = 60.0
AT_LEAST = {"ours_over_bare": 0.8, "ours_over_bare_small": 0.6}
AT_MOST = {"rss_growth_mb": 16.0}
SMALL, LARGE = "0.5 MB", "8 MB"

Pairs = list[tuple[Speed, Speed]]


@dataclass(frozen=True)
class Memory:
    """The most MiB of the API and its decoders while clips of 1 MiB came, and while clips of `size` MiB came."""

    size: int
    with_small: float
    with_large: float


def compare(ours: Target, bare: Target, clips: ClipMaker, pairs: int, seconds: float) -> Pairs:
    """Rounds of ours and of the bare one, in turn, after one of each that is not counted."""
    for target in (ours, bare):
        send_for(target, clips, min(seconds, 1.0), CLIENTS)
        target.forget()
    rounds = []
    for number in range(pairs):
        speeds = {}
        for target in (ours, bare) if number % 2 else (bare, ours):
            speeds[target.name] = send_for(target, clips, seconds, CLIENTS)
            target.forget()
        rounds.append((speeds[ours.name], speeds[bare.name]))
    return rounds


def measure_memory(ours: Target, process: psutil.Process, size: int) -> Memory:
    """Send as many bytes in clips of 1 MiB as in clips of `size` MiB."""
    most = []
    for mib, times in ((1, size), (size, 1)):
        clips = make_clips(mib * MIB, 1280, 720, 4_000_000)
        most.append(most_memory(process, lambda clips=clips, times=times: send_times(ours, clips, times, CLIENTS)))  # type: ignore[misc]
        ours.forget()
    return Memory(size, *most)


@contextmanager
def both_servers(folder: Path) -> Iterator[tuple[Target, Target, psutil.Process]]:
    """Ours and the bare one, running, and the process of our API. Raises RuntimeError when one does not start."""
    kept = folder / "bare"
    kept.mkdir()
    port = chosen_port("127.0.0.1", 0, "")
    settings = Settings(data_dir=folder / "ours", api_port=0, log_level="warning")
    try:
        with start_local(settings, (POSTGRES, API)) as stack:
            command = [sys.executable, "-m", "benchmarks.bare_upload", str(kept), str(port)]
            bare = subprocess.Popen(command, cwd=Path(__file__).parents[1], env=stack.settings.child_environment())
            try:
                other = Target("bare", f"http://127.0.0.1:{port}", "", kept)
                _wait_for(other, bare)
                ours = Target("ours", stack.state.api_url, stack.state.admin_token, Path(stack.settings.blobs))
                yield ours, other, psutil.Process(int(stack.state.roles[API]["pid"]))
            finally:
                bare.terminate()
                bare.wait()
    finally:
        shutil.rmtree(runtime_folder(settings.data_dir), ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table, and last the line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the same in half a minute, with fewer and shorter rounds")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where the data goes: on a real disk")
    chosen = parser.parse_args(arguments)
    pairs, seconds, most_mib = (2, 1.0, 16) if chosen.quick else (8, 2.0, 64)

    clips = {
        SMALL: make_clips(MIB // 2, 640, 360, 1_000_000),
        LARGE: make_clips(8 * MIB, 1280, 720, 8_000_000),
    }
    folder = Path(tempfile.mkdtemp(prefix="longtail-benchmark-", dir=chosen.folder))
    folder.chmod(0o711)  # PostgreSQL's user passes through
    try:
        with both_servers(folder) as (ours, bare, process):
            rounds = {size: compare(ours, bare, each, pairs, seconds) for size, each in clips.items()}
            memory = measure_memory(ours, process, most_mib)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _tell(clips, rounds, memory)
    found = {
        "ours_over_bare": _ratio(rounds[LARGE]),
        "ours_over_bare_small": _ratio(rounds[SMALL]),
        "rss_growth_mb": memory.with_large - memory.with_small,
    }
    conclude("ingest", found, AT_LEAST, AT_MOST)


def _wait_for(target: Target, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            Client(target, "").close()
            return
        except ConnectionRefusedError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the bare server did not start") from None
            time.sleep(0.05)


def _ratio(rounds: Pairs) -> float:
    """The median over pairs of rounds, so that what else the machine did for a moment counts little."""
    return statistics.median(ours.clips_per_s / bare.clips_per_s for ours, bare in rounds)


def _tell(clips: Mapping[str, ClipMaker], rounds: Mapping[str, Pairs], memory: Memory) -> None:
    rows = []
    for size, pairs in rounds.items():
        for name, speeds in (("ours", [ours for ours, _ in pairs]), ("bare", [bare for _, bare in pairs])):
            rate = sum(each.clips for each in speeds) / sum(each.seconds for each in speeds)
            slowest, fastest = (limit(each.clips_per_s for each in speeds) for limit in (min, max))
            megabytes = rate * clips[size].size / 1e6
            rows.append((f"{size}, {name}", f"{rate:.1f}", f"{megabytes:.0f}", f"{slowest:.1f} to {fastest:.1f}"))
        rows.append((f"{size}, ours / bare", f"{_ratio(pairs):.2f}", "", ""))
    show("POST /v1/clips", ("clips", "clips/s", "MB/s", "clips/s by round"), rows)
    show(
        "The most memory of API and decoders, MiB",
        ("clips of 1 MB", f"clips of {memory.size} MB"),
        [(f"{memory.with_small:.0f}", f"{memory.with_large:.0f}")],
    )


if __name__ == "__main__":
    main()
