"""ModelChecks that need nothing run: of HydraNet weights, and of versions that nobody here can ask."""

from __future__ import annotations

from safetensors import SafetensorError, safe_open

from engine.domain.refusals import Invalid
from engine.ports import ModelFiles


class SafetensorsCheck:
    """Whether the network can be rebuilt from the config is seen when it is judged: that needs torch."""

    def check(self, model: ModelFiles) -> None:
        """Raises Invalid."""
        try:
            with safe_open(model.weights, framework="numpy") as tensors:
                empty = not tensors.keys()
        except (SafetensorError, OSError) as error:
            raise Invalid(
                "weights-rejected",
                f"the weights are no safetensors file: {error}",
                "save them with safetensors, not with pickle; of another kind of file, say its `format`",
            ) from error
        if empty:
            raise Invalid("weights-rejected", "the weights hold no tensor", "check what was saved")


class SentCheck:
    """The ModelCheck of versions whose answers are sent to us: each answer is looked at when it comes."""

    def check(self, model: ModelFiles) -> None:
        """Nothing of it is opened here, so there is nothing to refuse: it may be any file, or none."""
