"""Inference workers are killed in the middle of clips, Redis forgets and dies: every clip is scored once."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from loop_fixtures import Loop
from role_fixtures import Roles
from sqlalchemy import select, text
from worker_fixtures import OwnRedis

from engine.ports import TrainedModel
from engine.store.tables.models import Embedding, Score, Scoring
from engine.store.tables.recordings import Clip, Subject

CLIPS, FRAMES, KILLS = 22, 40, 4


@pytest.fixture
def redis_url(own_redis: OwnRedis) -> str:
    """Of a Redis that may be killed; `roles` and the test's own hints use it."""
    own_redis.start()
    return own_redis.url


@pytest.mark.slow
def test_every_clip_is_scored_once_whoever_dies(
    loop: Loop, roles: Roles, own_redis: OwnRedis, trained: Callable[..., TrainedModel]
) -> None:
    with loop.database.unit() as unit:
        unit.session.execute(text('UPDATE model_lines SET settings = settings || \'{"scoring": {"every_s": 0.25}}\''))
        unit.commit()
    loop.labelled_drives([100], "golden")
    for seed in range(CLIPS):
        loop.add_clip(seed, frames=FRAMES)
    champion = loop.register(trained(60), judged=True)
    for _ in range(2):
        roles.start("inference")
    loop.crown(champion, loop.freeze_golden().id)
    start = time.monotonic()
    killed = set()
    for kill in range(KILLS):
        if kill == 1:
            with own_redis.client() as client:
                client.flushall()
        if kill == 2:
            own_redis.kill()
        if kill == 3:
            assert roles.open("score") > 2  # there is work left for after its return
            own_redis.start()
        roles.wait(lambda: roles.at_work("score"), 60, every_s=0.005)
        found = roles.at_work("score")
        if found is None:
            continue
        worker, job = found
        time.sleep(0.03)  # into its work
        roles.kill(worker)
        killed.add(job)
        roles.start("inference")
    roles.wait(lambda: not roles.open("score"), 120)
    elapsed = time.monotonic() - start
    interrupted = [job for job in loop.jobs("score") if job.attempt > 1]
    print(f"{CLIPS} clips, {len(killed)} kills, {len(interrupted)} interrupted, {elapsed:.1f} s")
    assert len(killed) >= 3
    assert len(interrupted) >= 2  # the kills hit work
    assert [job.state for job in loop.jobs("score")] == ["done"] * CLIPS
    pool = loop.all(Clip, Clip.split == "pool")
    assert {clip.state for clip in pool} == {"scored"}
    assert sorted(s.clip_id for s in loop.all(Scoring)) == [clip.id for clip in pool]
    assert loop.count(Subject, Subject.clip_id.in_([clip.id for clip in pool])) == CLIPS * FRAMES
    assert loop.count(Score) == CLIPS * FRAMES * 2
    assert loop.count(Embedding) == CLIPS * FRAMES
    with loop.database.read() as session:
        golden = select(Clip.id).where(Clip.split == "golden")
        assert session.scalars(select(Scoring.id).where(Scoring.clip_id.in_(golden))).all() == []
    assert loop.line().selection_model_id == champion
