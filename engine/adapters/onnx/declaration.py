"""What the owner of an ONNX file says of it: what goes in, and how what comes out is read as answers of its heads.

docs/bring-your-model.md tells it for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engine.domain.ontology import Head
from engine.domain.refusals import Invalid

Named = Annotated[str, Field(min_length=1, max_length=200)]
Triple = tuple[float, float, float]
HINT = "docs/bring-your-model.md has the fields of a declaration, with an example"


class Spec(BaseModel):
    """A part of a declaration. A field that we don't know is an error, so that a misspelt one is not silently lost."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class InputSpec(Spec):
    """The one input: a batch of pictures. A value is (pixel * scale - mean) / std, channel by channel.

    `mean` and `std` are in the order of `channels`. `fit`: "stretch" to the size, or "letterbox" (keep the shape, fill
    with `pad`). `batch`: the most pictures at a time; a file with a fixed batch must have this very one.
    """

    name: Named
    height: int = Field(ge=1, le=4096)
    width: int = Field(ge=1, le=4096)
    layout: Literal["nchw", "nhwc"] = "nchw"
    channels: Literal["rgb", "bgr"] = "rgb"
    dtype: Literal["float32", "float16", "uint8"] = "float32"
    scale: float = 1 / 255
    mean: Triple = (0.0, 0.0, 0.0)
    std: Triple = (1.0, 1.0, 1.0)
    fit: Literal["stretch", "letterbox"] = "stretch"
    pad: int = Field(default=114, ge=0, le=255)
    batch: int = Field(default=1, ge=1, le=64)

    @model_validator(mode="after")
    def _divisible(self) -> InputSpec:
        if min(map(abs, self.std)) == 0:
            raise ValueError("std must not be 0")
        if self.dtype == "uint8" and (self.scale, self.mean, self.std) != (1 / 255, (0.0,) * 3, (1.0,) * 3):
            raise ValueError("an input of uint8 gets the pixels as they are: leave scale, mean and std out")
        return self


class FromOutput(Spec):
    """A number or features that the model gives itself. An uncertainty of more than one number is averaged."""

    output: Named


class HeadSpec(Spec):
    """`classes`: by the model's own class index the name in the ontology, or null for what the ontology has not.

    `uncertainty`: without it, what follows from the answer, as each kind says.
    """

    name: Named
    uncertainty: FromOutput | None = None


class BoxOutputs(Spec):
    """(B, N, 4) boxes with (B, N, K) scores, or with (B, N) scores and (B, N) `labels`. B may be missing where the
    batch is 1."""

    boxes: Named
    scores: Named
    labels: Named | None = None


class PackedOutput(Spec):
    """One output of 4 box numbers, an objectness if there is one, and K scores: (B, N, 4 + K) by "rows", (B, 4 + K, N)
    by "columns"."""

    packed: Named
    order: Literal["rows", "columns"]
    objectness: bool = False


class BoxesSpec(HeadSpec):
    """Uncertainty: binary entropy of the 20 best scores, weighted by them, as HydraNet's.

    `coordinates`: "pixels" of the input, or "fractions" of it. `nms`: boxes of a class that overlap more than this
    are one; null where the file does that itself.
    """

    kind: Literal["boxes"]
    classes: list[Named | None] = Field(min_length=1, max_length=10_000)
    outputs: BoxOutputs | PackedOutput
    box: Literal["xyxy", "cxcywh", "xywh"] = "xyxy"
    coordinates: Literal["pixels", "fractions"] = "pixels"
    scores: Literal["probabilities", "logits"] = "probabilities"
    nms: float | None = Field(default=0.5, gt=0, le=1)
    min_score: float = Field(default=0.05, ge=0, le=1)
    max_boxes: int = Field(default=100, ge=1, le=1000)


class OneOutput(Spec):
    """The head's one output."""

    scores: Named


class IndexOutput(Spec):
    """A map of class indices."""

    indices: Named


class MaskSpec(HeadSpec):
    """(B, K, h, w) scores, or (B, h, w) indices; null in `classes` is background. With one class alone, scores of
    (B, 1, h, w) are that class's, over `threshold`.

    Uncertainty: mean entropy over the cells; of indices 0, so that nothing is chosen by this head.
    """

    kind: Literal["mask"]
    classes: list[Named | None] = Field(min_length=1, max_length=254)
    outputs: OneOutput | IndexOutput
    scores: Literal["probabilities", "logits"] = "logits"
    threshold: float = Field(default=0.5, gt=0, lt=1)


class ValueOutput(Spec):
    """(B, h, w) or (B, 1, h, w) numbers."""

    values: Named


class DenseScalarSpec(HeadSpec):
    """An answer is `scale` * x + `offset`, in the head's unit; or, where `inverse`, 1 over that (disparity to depth).

    Uncertainty: 0 without an output for it, so that nothing is chosen by this head.
    """

    kind: Literal["dense_scalar"]
    outputs: ValueOutput
    scale: float = 1.0
    offset: float = 0.0
    inverse: bool = False


class ChoiceSpec(HeadSpec):
    """(B, K) scores. Uncertainty: entropy over the classes, in nats."""

    kind: Literal["choice"]
    classes: list[Named | None] = Field(min_length=1, max_length=10_000)
    outputs: OneOutput
    scores: Literal["probabilities", "logits"] = "logits"


Specs = BoxesSpec | MaskSpec | DenseScalarSpec | ChoiceSpec


class Declaration(Spec):
    """The whole of it. Without `embedding`, a subject's place follows from a thumbnail of its picture."""

    input: InputSpec
    heads: list[Annotated[Specs, Field(discriminator="kind")]] = Field(min_length=1, max_length=256)
    embedding: FromOutput | None = None

    @property
    def outputs(self) -> list[str]:
        """The outputs that are read, each once."""
        names = [name for head in self.heads for name in _outputs(head)]
        return list(dict.fromkeys([*names, *([self.embedding.output] if self.embedding else [])]))


def _outputs(head: Specs) -> list[str]:
    named = head.outputs.model_dump(exclude={"order", "objectness"}, exclude_none=True)
    return [*named.values(), *([head.uncertainty.output] if head.uncertainty else [])]


def parse(config: Mapping[str, Any]) -> Declaration:
    """The declaration in a model version's config. Raises Invalid, naming the first field that is wrong."""
    try:
        return Declaration.model_validate(config)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the declaration"
        raise Invalid("invalid-config", f"{place}: {first['msg']}", HINT) from error


def fits_ontology(declared: Declaration, heads: Sequence[Head]) -> None:
    """Raises Invalid unless each head that is declared is one of these, by kind and classes."""
    known = {head.name: head for head in heads}
    for spec in declared.heads:
        head = known.get(spec.name)
        if head is None:
            raise Invalid("invalid-config", f"there is no head {spec.name!r}", f"heads are: {', '.join(known)}")
        if spec.kind != head.kind:
            raise Invalid(
                "invalid-config",
                f"head {spec.name!r} is {head.kind} in the ontology, and {spec.kind} in the declaration",
                "declare it as the ontology has it, or register the model for another line",
            )
        if isinstance(spec, DenseScalarSpec):
            continue
        named = {name for name in spec.classes if name is not None}
        if strange := sorted(named - set(head.classes)):
            raise Invalid(
                "invalid-config",
                f"head {spec.name!r} has no class {strange[0]!r} in the ontology",
                f"it has {', '.join(head.classes)}; say null for what the ontology does not have",
            )
        if not named:
            raise Invalid("invalid-config", f"head {spec.name!r} names no class of the ontology", HINT)
        if isinstance(spec, ChoiceSpec) and None in spec.classes and len(named) < 2 <= len(head.classes):
            raise Invalid(
                "invalid-config", f"head {spec.name!r} could only ever choose {min(named)!r}", "name two classes"
            )
