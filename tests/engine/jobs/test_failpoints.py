"""Failpoints."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from engine.jobs import failpoints


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.arm("")


def test_unarmed_points_do_nothing() -> None:
    failpoints.hit("push.after_post")
    failpoints.arm("score.before_record=raise")
    failpoints.hit("push.after_post")


def test_a_point_acts_at_its_nth_hit_and_once() -> None:
    failpoints.arm("push.after_post=raise@3, score.before_record=raise")
    failpoints.hit("push.after_post")
    failpoints.hit("push.after_post")
    with pytest.raises(failpoints.FailpointHit, match=r"push\.after_post"):
        failpoints.hit("push.after_post")
    failpoints.hit("push.after_post")
    with pytest.raises(failpoints.FailpointHit):
        failpoints.hit("score.before_record")


def test_kill_ends_the_process_on_the_spot() -> None:
    program = "from engine.jobs import failpoints as f; f.arm('a.b=kill'); f.hit('a.b'); print('alive')"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (finished.returncode, finished.stdout) == (-signal.SIGKILL, b"")


@pytest.mark.parametrize("text", ["push.after_post", "push.after_post=explode", "=kill", "a=kill@0", "a=kill@x"])
def test_what_can_not_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not name=kill"):
        failpoints.arm(text)
