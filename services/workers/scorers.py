"""The scorer of the workers that ask models: one for each format. Import it only where nothing forks afterwards."""

from __future__ import annotations

from engine.adapters.by_format import ScorerByFormat
from engine.adapters.http_scorer import HttpScorer
from engine.adapters.onnx.scorer import OnnxScorer
from engine.adapters.torch.scorer import TorchScorer
from engine.domain.formats import ModelFormat
from engine.ports import Scorer
from services.wiring import Wiring, golden_picture


def scorer_of(wiring: Wiring) -> Scorer:
    """Asks any model version that can be asked."""
    settings = wiring.settings
    return ScorerByFormat(
        {
            ModelFormat.HYDRANET: TorchScorer(threads=settings.threads),
            ModelFormat.ONNX: OnnxScorer(threads=settings.threads),
            ModelFormat.HTTP: HttpScorer(golden_picture(wiring), wiring.redactor, settings.outbound_networks),
        }
    )
