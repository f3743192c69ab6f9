"""Which class answers for which kind. A new kind is its file and one line here."""

from __future__ import annotations

from typing import Any

from models.heads.boxes import BoxesHead
from models.heads.choice import ChoiceHead
from models.heads.dense_scalar import DenseScalarHead
from models.heads.dense_vector import DenseVectorHead
from models.heads.head import Head, HeadSpec
from models.heads.mask import MaskHead
from models.heads.polylines import PolylinesHead

HEAD_KINDS: dict[str, type[Any]] = {
    "boxes": BoxesHead,
    "choice": ChoiceHead,
    "dense_scalar": DenseScalarHead,
    "dense_vector": DenseVectorHead,
    "mask": MaskHead,
    "polylines": PolylinesHead,
}


def build_head(spec: HeadSpec, size: tuple[int, int], channels: int, width: int) -> Head[Any, Any, Any]:
    """Raises ValueError for a kind that no head answers for."""
    if spec.kind not in HEAD_KINDS:
        raise ValueError(
            f"head {spec.name!r}: no network for kind {spec.kind!r}; there are {', '.join(sorted(HEAD_KINDS))}"
        )
    head: Head[Any, Any, Any] = HEAD_KINDS[spec.kind](spec, size, channels, width)
    return head
