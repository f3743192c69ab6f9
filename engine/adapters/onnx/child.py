"""The child that looks into an ONNX file nobody has vouched for: `python -m engine.adapters.onnx.child PARENT LIMITS`.

One JSON line comes in on standard input, one goes out: what is wrong with the file, or null.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message

from engine.adapters.onnx.declaration import parse
from engine.adapters.onnx.network import DoesNotFit, OnnxNetwork
from engine.adapters.video import sandbox
from engine.domain.answers import AnswerError, check_answer
from engine.domain.ontology import Head
from engine.domain.refusals import Invalid
from engine.ports import FrameScore, Picture

STANDARD = ("", "ai.onnx", "ai.onnx.ml")


def main() -> int:
    """Returns the exit code."""
    parent, limits = int(sys.argv[1]), json.loads(sys.argv[2])
    asked = json.loads(sys.stdin.readline())
    sandbox.enter(parent, limits["memory_bytes"])
    sandbox.allow_cpu(limits["cpu_s"])
    print(json.dumps(problem_of(asked)), flush=True)
    return 0


def problem_of(asked: dict[str, Any]) -> dict[str, str] | None:
    """What is wrong with the file at `path`, under `config`, for these `heads`: detail and hint; None for nothing."""
    content = Path(asked["path"]).read_bytes()
    heads = [Head.from_document(document) for document in asked["heads"]]
    try:
        _refuse_unsafe(content)
        declared = parse(asked["config"])
        network = OnnxNetwork(content, declared, heads, threads=1)
        pictures = _trial_pictures()
        for count in sorted({1, min(declared.input.batch, 8), declared.input.batch}):
            for score in network.score([pictures[place % len(pictures)] for place in range(count)]):
                _check(score, heads)
    except (DoesNotFit, _Unsafe) as error:
        hint = error.hint if isinstance(error, _Unsafe) else "correct the declaration, or export the file as it says"
        return {"detail": str(error), "hint": hint}
    except Invalid as error:
        return {"detail": error.detail, "hint": error.hint}
    return None


class _Unsafe(ValueError):
    def __init__(self, detail: str, hint: str) -> None:
        super().__init__(detail)
        self.hint = hint


def _refuse_unsafe(content: bytes) -> None:
    """Nothing but the file itself may take part: no other files, no code that onnxruntime does not bring along."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except DecodeError as error:
        raise _Unsafe(
            "the file is no ONNX model", "export the model to ONNX, with a tool such as torch.onnx"
        ) from error
    if not model.HasField("graph") or not model.graph.node:
        raise _Unsafe("the file is no ONNX model: it has no graph", "export the model to ONNX")
    own = {function.domain for function in model.functions}
    waiting: list[Message] = [model]
    while waiting:
        message = waiting.pop()
        if isinstance(message, onnx.TensorProto) and (
            message.data_location == onnx.TensorProto.EXTERNAL or message.external_data
        ):
            raise _Unsafe(
                f"tensor {message.name!r} lies in another file (external data)",
                "save the model as one file: onnx.save_model(..., save_as_external_data=False)",
            )
        if isinstance(message, onnx.NodeProto) and message.domain not in STANDARD and message.domain not in own:
            raise _Unsafe(
                f"operator {message.op_type!r} of {message.domain!r} is no standard ONNX operator",
                "export the model with standard operators alone, before any runtime optimises it",
            )
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting += [value] if isinstance(value, Message) else list(value)


def _trial_pictures() -> list[Picture]:
    noise = np.random.default_rng(7)
    drawn = np.kron(noise.integers(0, 255, (9, 12, 3)), np.ones((8, 8, 1))).astype(np.uint8)
    cells = (drawn, np.full((72, 96, 3), 128, np.uint8), np.zeros((96, 54, 3), np.uint8))
    return [Picture(0, shade.shape[1], shade.shape[0], np.ascontiguousarray(shade).tobytes()) for shade in cells]


def _check(score: FrameScore, heads: list[Head]) -> None:
    known = {head.name: head for head in heads}
    for name, answer in score.answers.items():
        try:
            check_answer(known[name], answer)
        except AnswerError as error:
            raise DoesNotFit(f"on a trial picture: {error}") from error
        if not np.isfinite(score.uncertainty[name]) or score.uncertainty[name] < 0:
            raise DoesNotFit(
                f"on a trial picture head {name!r} is not finite, or has an uncertainty below 0 "
                f"({score.uncertainty[name]})"
            )
    if len(score.embedding) != 128 or not np.isfinite(score.embedding).all():
        raise DoesNotFit("on a trial picture the embedding is not finite")


if __name__ == "__main__":
    sys.exit(main())
