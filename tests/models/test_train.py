from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from models.checkpoint import load_weights
from models.evaluate import infer, load_network
from models.hydranet import HydraNet, HydraNetConfig
from models.loader import Batches, TrainingSet, read_samples
from models.pictures import read_picture
from models.targets import runs_to_grid
from models.train import REFUSED, learning_rate, main

MakeFolder = Callable[..., Path]


def run(folder: Path, attempt: int = 0) -> int:
    return main([str(folder), "--attempt", str(attempt)])


def refusal(folder: Path) -> str:
    assert run(folder) == REFUSED
    assert not (folder / "attempt-0" / "result.json").exists()
    return str(json.loads((folder / "attempt-0" / "refused.json").read_text())["reason"])


def test_overfits_a_tiny_set_for_every_kind(make_folder: MakeFolder) -> None:
    heads = ("driveable", "lanes", "objects", "depth", "normals", "weather")
    folder = make_folder("all", 4, heads, steps=90, learning_rate=5e-3, checkpoint_every=90)
    config = json.loads((folder / "config.json").read_text())
    config["options"]["augment"] = False
    (folder / "config.json").write_text(json.dumps(config))
    assert run(folder) == 0
    result = json.loads((folder / "attempt-0" / "result.json").read_text())
    assert result["labelled"] == dict.fromkeys(heads, 4)
    for head in heads:
        assert result["losses"][head] < 0.4 * result["losses_at_start"][head], head
    net = load_network(
        folder / "attempt-0" / "weights.safetensors", json.loads((folder / "attempt-0" / "model.json").read_text())
    )
    answers = infer(net, [read_picture(folder / f"{i}.png", 48, 96) for i in range(4)])
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for answer, sample in zip(answers, samples, strict=True):
        true = runs_to_grid(sample["labels"]["driveable"]["value"]["runs"], (48, 96)) == 1
        found = runs_to_grid(answer.answers["driveable"].value["runs"], (48, 96)) == 1
        assert (true & found).sum() / (true | found).sum() > 0.8
        assert answer.answers["objects"].value["objects"][0]["class"] == "car"
        assert all(np.isfinite(value) and value >= 0 for value in answer.uncertainty.values())
        assert set(answer.uncertainty) == set(heads)


def test_resumed_run_ends_with_the_same_weights(make_folder: MakeFolder) -> None:
    whole, cut = make_folder("whole", 5, steps=6), make_folder("cut", 5, steps=6)
    assert run(whole) == 0
    assert run(cut) == 0
    # As a kill after the checkpoint at step 4 would leave it.
    attempt = cut / "attempt-0"
    for name in ("result.json", "weights.safetensors", "checkpoint-000006.pt"):
        (attempt / name).unlink()
    assert run(cut, attempt=1) == 0
    first = json.loads((cut / "attempt-1" / "progress.jsonl").read_text().splitlines()[0])
    assert first["step"] == 4
    same = load_weights(whole / "attempt-0" / "weights.safetensors")
    resumed = load_weights(cut / "attempt-1" / "weights.safetensors")
    assert all(torch.equal(same[name], resumed[name]) for name in same)
    assert set(same) == set(resumed)


def test_another_seed_gives_other_weights(make_folder: MakeFolder) -> None:
    one, two = make_folder("one", 3, steps=2), make_folder("two", 3, steps=2, seed=1)
    assert run(one) == 0
    assert run(two) == 0
    a, b = (load_weights(folder / "attempt-0" / "weights.safetensors") for folder in (one, two))
    assert not torch.equal(a["neck.lateral.0.0.weight"], b["neck.lateral.0.0.weight"])
    assert torch.equal(a["embedding_projection"], b["embedding_projection"])


def test_warm_start_takes_the_heads_that_match(make_folder: MakeFolder) -> None:
    before = make_folder("before", 4, ("driveable", "depth"), steps=3)
    assert run(before) == 0
    after = make_folder("after", 4, ("driveable", "objects"), steps=1, learning_rate=1e-9)
    content = (before / "attempt-0" / "weights.safetensors").read_bytes()
    (after / "warm.safetensors").write_bytes(content)
    config = json.loads((after / "config.json").read_text())
    model = json.loads((before / "attempt-0" / "model.json").read_text())
    config["warm_start"] = {"weights": "warm.safetensors", "config": model}
    (after / "config.json").write_text(json.dumps(config))
    assert run(after) == 0
    said = json.loads((after / "attempt-0" / "result.json").read_text())["warm_start"]
    assert (said["loaded"], said["fresh"], said["trunk"]) == (["driveable"], ["objects"], 1.0)
    old, new = (
        load_weights(before / "attempt-0" / "weights.safetensors"),
        load_weights(after / "attempt-0" / "weights.safetensors"),
    )
    for name in ("heads.driveable.tower.out.weight", "backbone.stages.0.0.0.weight", "embedding_projection"):
        torch.testing.assert_close(old[name], new[name], rtol=0, atol=1e-6)


def test_a_renamed_class_is_not_warm_started(make_folder: MakeFolder) -> None:
    before = make_folder("before", 3, ("driveable",), steps=1)
    assert run(before) == 0
    after = make_folder("after", 3, ("driveable",), steps=1)
    (after / "warm.safetensors").write_bytes((before / "attempt-0" / "weights.safetensors").read_bytes())
    config = json.loads((after / "config.json").read_text())
    model = json.loads((before / "attempt-0" / "model.json").read_text())
    model["heads"][0]["classes"] = ["verge", "road"]
    config["warm_start"] = {"weights": "warm.safetensors", "config": model}
    (after / "config.json").write_text(json.dumps(config))
    assert run(after) == 0
    assert json.loads((after / "attempt-0" / "result.json").read_text())["warm_start"]["fresh"] == ["driveable"]


def test_learning_rate_climbs_before_it_falls() -> None:
    cold = [learning_rate(step, 300, 1.0, False, {}) for step in range(300)]
    warm = [learning_rate(step, 120, 1.0, True, {}) for step in range(120)]
    assert cold[0] == pytest.approx(0.05)
    assert max(cold) == pytest.approx(1.0)
    assert cold.index(max(cold)) == 19
    assert warm[0] < 0.05
    assert warm.index(max(warm)) == 23
    assert cold[-1] < 0.03
    assert warm[-1] < 0.03


def test_every_head_meets_its_labels(make_folder: MakeFolder) -> None:
    folder = make_folder("rare", 12, labelled=lambda index, head: head == "depth" or index == 0)
    config = json.loads((folder / "config.json").read_text())
    net = HydraNet(HydraNetConfig.from_document(config))
    data = TrainingSet(folder, read_samples(folder), net)
    batches = Batches(data, data.labelled(), seed=0, size=4, augmented=True)
    for step in range(6):
        batch = batches.batch(step)
        assert len(batch.rows["driveable"]) >= 2
        assert len(batch.rows["depth"]) == 4
    again = Batches(data, data.labelled(), seed=0, size=4, augmented=True)
    assert torch.equal(again.batch(5).pictures, batch.pictures)


def test_refuses_an_empty_dataset(make_folder: MakeFolder) -> None:
    assert "empty" in refusal(make_folder("none", 0))


def test_refuses_a_head_without_labels(make_folder: MakeFolder) -> None:
    reason = refusal(make_folder("some", 3, labelled=lambda index, head: head == "driveable"))
    assert "'depth'" in reason
    assert "no labelled sample" in reason


def test_refuses_labels_that_are_all_nan(make_folder: MakeFolder) -> None:
    folder = make_folder("nan", 2)
    for index in range(2):
        np.save(folder / f"{index}-depth.npy", np.full((48, 96), np.nan, np.float16))
    assert "'depth'" in refusal(folder)


def test_refuses_a_number_that_is_not_finite_and_names_the_sample(make_folder: MakeFolder) -> None:
    folder = make_folder("inf", 2)
    np.save(folder / "1-depth.npy", np.full((48, 96), np.inf, np.float16))
    reason = refusal(folder)
    assert "sample 1" in reason
    assert "infinite" in reason


def test_refuses_an_unknown_backbone_and_a_size_off_the_grid(make_folder: MakeFolder) -> None:
    assert "regnet_y_400mf" in refusal(make_folder("backbone", 2, backbone="alexnet"))
    assert "multiples of 4" in refusal(make_folder("size", 2, height=50))


def test_refuses_a_class_that_the_head_does_not_have(make_folder: MakeFolder) -> None:
    folder = make_folder("class", 2, ("objects",))
    content = (folder / "samples.jsonl").read_text()
    (folder / "samples.jsonl").write_text(content.replace('"car"', '"tram"'))
    reason = refusal(folder)
    assert "sample 0, head 'objects'" in reason
    assert "'tram'" in reason


def test_refuses_a_picture_that_cannot_be_read(make_folder: MakeFolder) -> None:
    folder = make_folder("torn", 2)
    (folder / "1.png").write_bytes(b"no picture")
    assert "sample 1" in refusal(folder)


def test_refuses_when_the_loss_runs_away(make_folder: MakeFolder) -> None:
    reason = refusal(make_folder("wild", 2, steps=40, learning_rate=1e18))
    assert "at step" in reason
