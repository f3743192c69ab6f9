from __future__ import annotations

from pathlib import Path

import torch

from models.checkpoint import newest_checkpoint, save_checkpoint


def anything(state: object) -> bool:
    return True


def saved(folder: Path, attempt: int, step: int) -> Path:
    path = folder / f"attempt-{attempt}"
    path.mkdir(exist_ok=True)
    save_checkpoint(path, step, {"step": step, "attempt": attempt, "weights": torch.full((100,), float(step))})
    return path / f"checkpoint-{step:06d}.pt"


def test_the_newest_of_all_attempts_wins(tmp_path: Path) -> None:
    saved(tmp_path, 0, 10)
    saved(tmp_path, 2, 20)
    saved(tmp_path, 10, 20)
    saved(tmp_path, 1, 15)
    state = newest_checkpoint(tmp_path, anything)
    assert state is not None
    assert (state["step"], state["attempt"]) == (20, 10)


def test_a_corrupt_or_torn_checkpoint_is_passed_over(tmp_path: Path) -> None:
    whole = saved(tmp_path, 0, 10)
    corrupt = saved(tmp_path, 0, 20)
    content = bytearray(corrupt.read_bytes())
    content[len(content) // 2] ^= 1  # one bit: inside a tensor's data, so that it would load without an error
    corrupt.write_bytes(content)
    torn = saved(tmp_path, 1, 30)
    torn.write_bytes(torn.read_bytes()[:100])
    unsealed = saved(tmp_path, 2, 40)
    unsealed.with_name(unsealed.name + ".sha256").unlink()
    assert whole.exists()
    state = newest_checkpoint(tmp_path, anything)
    assert state is not None
    assert state["step"] == 10


def test_two_checkpoints_of_an_attempt_are_kept(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        saved(tmp_path, 0, step)
    names = sorted(path.name for path in (tmp_path / "attempt-0").iterdir())
    assert names == [f"checkpoint-0000{n}.pt{end}" for n in (20, 30) for end in ("", ".sha256")]


def test_one_of_another_plan_is_not_wanted(tmp_path: Path) -> None:
    saved(tmp_path, 0, 10)
    assert newest_checkpoint(tmp_path, lambda state: state["step"] > 10) is None
    assert newest_checkpoint(tmp_path / "nothing", anything) is None
