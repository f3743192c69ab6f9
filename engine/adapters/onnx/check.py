"""The ModelCheck for ONNX files: they are parsed, loaded and tried in a child process with limits, never in ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.adapters.onnx.declaration import fits_ontology, parse
from engine.domain.refusals import Invalid
from engine.ports import ModelFiles

CODE = "model-rejected"
_SOURCE_ROOT = Path(__file__).resolve().parents[3]
# Nothing of our own environment: it may hold secrets.
_ENVIRONMENT = {"PYTHONPATH": str(_SOURCE_ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_TAIL = 300


@dataclass(frozen=True)
class CheckLimits:
    """What looking into one file may use. `memory_bytes` is address space: an ONNX file has at most 2 GiB."""

    wall_s: float = 180.0
    cpu_s: int = 150
    memory_bytes: int = 12 << 30


class OnnxCheck:
    """Loads the file and runs it on trial pictures as its declaration says, without privileges. Two at a time."""

    def __init__(self, limits: CheckLimits | None = None) -> None:
        self._limits = limits or CheckLimits()
        self._free = threading.BoundedSemaphore(2)

    def check(self, model: ModelFiles) -> None:
        """Raises Invalid: for a declaration that is none or is not for these heads, for a file with external data or
        operators that are not standard, and for one that does not fit its declaration."""
        fits_ontology(parse(model.config), model.heads)
        asked = {
            "path": str(model.weights.resolve()),
            "config": dict(model.config),
            "heads": [head.to_document() for head in model.heads],
        }
        with self._free:
            problem = self._asked(json.dumps(asked))
        if problem is not None:
            raise Invalid(CODE, problem["detail"], problem["hint"])

    def _asked(self, question: str) -> dict[str, str] | None:
        command = [
            sys.executable,
            "-m",
            "engine.adapters.onnx.child",
            str(os.getpid()),
            json.dumps(asdict(self._limits)),
        ]
        try:
            child = subprocess.run(
                command,
                input=question + "\n",
                capture_output=True,
                text=True,
                timeout=self._limits.wall_s,
                env=_ENVIRONMENT,
                cwd=_SOURCE_ROOT,
            )
        except subprocess.TimeoutExpired as error:
            raise Invalid(
                CODE, f"the file took more than {self._limits.wall_s:g} s to be tried", "send a smaller model"
            ) from error
        if child.returncode != 0:
            said = child.stderr.strip().splitlines()[-1][-_TAIL:] if child.stderr.strip() else "it said nothing"
            raise Invalid(
                CODE,
                f"the file ended the process that tried it (code {child.returncode}: {said})",
                "check that the file runs with onnxruntime on a CPU, and that it needs less memory",
            )
        problem: dict[str, str] | None = json.loads(child.stdout)
        return problem
