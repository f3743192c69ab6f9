from __future__ import annotations

import pytest
import torch

from models.backbone import BACKBONES, STRIDES, build_backbone


@pytest.mark.parametrize("name", sorted(BACKBONES))
@pytest.mark.parametrize(("height", "width"), [(96, 192), (144, 192), (36, 52)])
def test_features_come_at_four_strides(name: str, height: int, width: int) -> None:
    backbone = build_backbone(name)
    features = backbone(torch.randn(1, 3, height, width))
    shapes = [tuple(feature.shape[1:]) for feature in features]
    assert shapes == [(c, -(-height // s), -(-width // s)) for c, s in zip(backbone.channels, STRIDES, strict=True)]


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_frames_do_not_touch_each_other(name: str) -> None:
    backbone = build_backbone(name).train()
    pictures = torch.randn(3, 3, 32, 64)
    alone, together = backbone(pictures[:1])[-1], backbone(pictures)[-1][:1]
    torch.testing.assert_close(alone, together, rtol=1e-3, atol=1e-4)


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match="mobilenet_v3_small"):
        build_backbone("alexnet")
