"""A simulated labeler sees our tasks in Label Studio as a person would, and what is true there becomes our labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeling_fixtures import Desk, Footage, Tool, Unheard, make_desk

from engine.adapters.blobs import LocalBlobStore
from engine.adapters.video.pool import MediaPool
from engine.adapters.video.reader import ChildFrameReader
from engine.domain.answers import decode_runs
from engine.store.database import connect
from engine.store.unit_of_work import Database
from services.simulation import drive as drives
from services.simulation.annotator import PERSONAS, Annotator, err
from services.simulation.drive import TIME_BASE_HZ, TruthBook, plan_drives
from services.simulation.truth import driving_ontology

pytestmark = [pytest.mark.label_studio, pytest.mark.slow]

(DRIVE,) = plan_drives(31, 1, "boosted", clips=1)
CLIP = DRIVE.clips[0]


@pytest.fixture
def sim_desk(database_url: str, data_dir: Path) -> Iterator[Desk]:
    heads = driving_ontology().heads
    rng = np.random.default_rng(0)
    true = drives.truth(DRIVE, CLIP, CLIP.pts[0])
    guess = {head.name: err(head, true[head.name], PERSONAS["careless"], rng) for head in heads}
    footage = Footage(
        drive=DRIVE.external_id,
        clip=CLIP.external_id,
        media=drives.encode(DRIVE, CLIP),
        pts=CLIP.pts,
        time_base=TIME_BASE_HZ,
        size=(DRIVE.camera.height, DRIVE.camera.width),
        heads=heads,
        predicted=guess,
    )
    engine, pool = connect(database_url, pool_size=10), MediaPool()
    yield make_desk(Database(engine, Unheard()), LocalBlobStore(data_dir / "blobs"), ChildFrameReader(pool), footage)
    pool.close()
    engine.dispose()


def test_an_exact_labelers_work_becomes_the_truth(sim_desk: Desk, tool: Tool) -> None:
    wanted = [head.name for head in sim_desk.ontology.person_heads]
    sim_desk.queue(sim_desk.campaign(heads=wanted), range(4))
    sim_desk.queue(sim_desk.campaign("random", heads=wanted), range(4, 6), arm="control")
    sim_desk.push(tool.bridge)
    number = tool.bridge.ensure_project(sim_desk.ontology)
    book = TruthBook([DRIVE])
    with Annotator(tool.url, tool.token, sim_desk.ontology, book.truth_for, PERSONAS["exact"]) as work:
        assert work.label(number).submitted == 6
    sim_desk.collect(tool.bridge)
    assert {item.state for item in sim_desk.items()} == {"labelled"}
    labels = {(label.subject_id, label.head): label.value for label in sim_desk.labels()}
    assert len(labels) == 6 * len(wanted)
    for place, subject in enumerate(sim_desk.frames[:6]):
        true = drives.truth(DRIVE, CLIP, CLIP.pts[place])
        mask = labels[subject, "driveable"]
        size: Any = tuple(mask["size"])
        assert decode_runs(mask["runs"], size) == decode_runs(true["driveable"].value["runs"], size)
        for key, head in (("objects", "objects"), ("objects", "signs"), ("lines", "lanes")):
            said, meant = labels[subject, head][key], true[head].value[key]
            assert [item["class"] for item in said] == [item["class"] for item in meant]
        for said, meant in zip(labels[subject, "objects"]["objects"], true["objects"].value["objects"], strict=True):
            assert said["box"] == pytest.approx(meant["box"], abs=1e-6)


def test_skips_come_back_for_somebody_else(sim_desk: Desk, tool: Tool) -> None:
    wanted = [head.name for head in sim_desk.ontology.person_heads]
    sim_desk.queue(sim_desk.campaign(heads=wanted), range(3))
    sim_desk.push(tool.bridge)
    number = tool.bridge.ensure_project(sim_desk.ontology)
    book = TruthBook([DRIVE])
    idle = replace(PERSONAS["exact"], name="idle", skip=1.0)
    eager = replace(PERSONAS["quick"], skip=0.0)
    with (
        Annotator(tool.url, tool.token, sim_desk.ontology, book.truth_for, idle) as skipper,
        Annotator(tool.url, tool.token, sim_desk.ontology, book.truth_for, eager) as quick,
    ):
        assert skipper.label(number).skipped == 3
        sim_desk.collect(tool.bridge)
        assert sim_desk.labels() == []
        sim_desk.push(tool.bridge)
        assert quick.label(number).submitted == 3
    sim_desk.collect(tool.bridge)
    assert {item.state for item in sim_desk.items()} == {"labelled"}
