"""The forms in which a model version can be here, and what each keeps as its artifact."""

from __future__ import annotations

from enum import StrEnum


class ModelFormat(StrEnum):
    """What an artifact is, and so who can be asked for its answers."""

    HYDRANET = "hydranet-safetensors"  # weights of our own network
    ONNX = "onnx"  # an ONNX file with a declaration of its heads
    HTTP = "http"  # a scorer at somebody's URL: its declaration and what it answered to a few golden pictures
    PREDICTIONS = "predictions"  # nothing that we can ask: its answers are made elsewhere and sent to us


DECLARED_ALONE = frozenset({ModelFormat.PREDICTIONS})
"""Those that need no file: their declaration is all that there is of them here."""

STARTABLE = frozenset({ModelFormat.HYDRANET, ModelFormat.ONNX})
"""Those whose artifact is weights, from which another training may start."""

MEDIA_TYPES = {
    ModelFormat.HYDRANET: "application/vnd.safetensors",
    ModelFormat.ONNX: "application/onnx",
    ModelFormat.HTTP: "application/json",
    ModelFormat.PREDICTIONS: "application/octet-stream",
}
"""Of an artifact's bytes."""
