"""A child process can't outlive whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from services.local.child import Child
from services.settings import system_environment

ROOT = Path(__file__).resolve().parents[3]


def gone(pid: int, within_s: float = 10.0) -> bool:
    """Whether the process has ended by then (a zombie has ended)."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


def start(tmp_path: Path, *command: str, **options: object) -> Child:
    return Child(list(command), system_environment(), tmp_path / "child.log", **options)


def wait_for(path: Path, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in (path.read_text() if path.exists() else ""):
        assert time.monotonic() < deadline, f"{text!r} never came"
        time.sleep(0.02)


def test_its_output_goes_to_its_log_and_its_files_are_private(tmp_path: Path) -> None:
    child = start(tmp_path, "/bin/sh", "-c", f"echo hello; echo trouble >&2; touch {tmp_path}/made; exit 4")
    while child.exit_code is None:
        time.sleep(0.01)
    assert child.exit_code == 4
    assert child.last_lines() == "hello\ntrouble"
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0


def test_a_missing_program_is_named_in_the_log(tmp_path: Path) -> None:
    child = start(tmp_path, "/no/such/program")
    while child.exit_code is None:
        time.sleep(0.01)
    assert child.exit_code == 127
    assert "/no/such/program: No such file" in child.last_lines()


def test_one_that_ignores_the_request_is_killed_with_all_it_started(tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 300 & echo pid $!; while :; do sleep 0.1; done"
    child = start(tmp_path, "/bin/sh", "-c", script)
    wait_for(child.log, "pid")
    grandchild = int(child.log.read_text().split()[1])
    child.stop(grace_s=0.3)
    assert child.exit_code == -signal.SIGKILL
    assert gone(grandchild)


def test_it_is_asked_to_end_once(tmp_path: Path) -> None:
    script = "trap 'echo asked' TERM; echo up; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done"
    child = start(tmp_path, "/bin/sh", "-c", script)
    wait_for(child.log, "up")
    child.request_stop()
    child.stop()
    assert child.last_lines() == "up\nasked"
    assert child.exit_code == 0


def test_it_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import time; from pathlib import Path; from services.local.child import Child;"
        f"child = Child(['/bin/sleep', '300'], {{}}, Path({str(tmp_path / 'x.log')!r})); print(child.pid, flush=True);"
        "time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert not gone(pid, within_s=0.3)
        os.kill(parent.pid, signal.SIGKILL)
    assert gone(pid)


def test_a_large_log_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "child.log").write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    child = start(tmp_path, "/bin/echo", "fresh")
    while child.exit_code is None:
        time.sleep(0.01)
    assert child.last_lines() == "fresh"
    assert (tmp_path / "child.log.1").exists()
