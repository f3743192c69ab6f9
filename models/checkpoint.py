"""Files that survive a kill: weights as safetensors, resume state that loads with `weights_only`.

A checkpoint is written beside its place, synced and renamed, and then sealed by its sha256 in a file of its own. One
without a seal that matches is passed over, and the newest whole one wins, whichever attempt wrote it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

KEPT = 2


def write_atomically(path: Path, content: bytes) -> None:
    """Durable on return: temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    write_atomically(path, json.dumps(document, indent=1, allow_nan=False).encode())


def save_weights(path: Path, state: Mapping[str, Tensor]) -> None:
    write_atomically(path, save({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}))


def load_weights(path: Path) -> dict[str, Tensor]:
    return load(path.read_bytes())


def save_checkpoint(attempt: Path, step: int, state: Mapping[str, Any]) -> None:
    """`state` holds tensors, numbers, strings, lists and dicts only. The two newest of an attempt are kept."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    content = buffer.getvalue()
    path = attempt / f"checkpoint-{step:06d}.pt"
    write_atomically(path, content)
    write_atomically(_seal(path), hashlib.sha256(content).hexdigest().encode())
    for old in sorted(attempt.glob("checkpoint-*.pt"))[:-KEPT]:
        _seal(old).unlink(missing_ok=True)
        old.unlink()


def newest_checkpoint(folder: Path, wanted: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any] | None:
    """The state of the newest whole checkpoint under `folder`/attempt-*/ for which `wanted` is true."""
    found = sorted(folder.glob("attempt-*/checkpoint-*.pt"), key=_order, reverse=True)
    for path in found:
        state = _load_whole(path)
        if state is not None and wanted(state):
            return state
    return None


def _load_whole(path: Path) -> dict[str, Any] | None:
    try:
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != _seal(path).read_text():
            return None
    except (OSError, UnicodeDecodeError):
        return None
    state: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def _seal(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _order(path: Path) -> tuple[int, int]:
    """Step first, then attempt."""
    step = re.fullmatch(r"checkpoint-(\d+)", path.stem)
    attempt = re.fullmatch(r"attempt-(\d+)", path.parent.name)
    return (int(step.group(1)) if step else -1, int(attempt.group(1)) if attempt else -1)
