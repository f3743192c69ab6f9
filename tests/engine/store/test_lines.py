"""Lines and their versions: numbers without gaps, ontologies that never change, artifacts that are what was judged."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

import pytest
from loop_fixtures import Loop
from road_scenes import LIGHT, ROAD
from sqlalchemy import text

from engine.domain.ontology import Ontology
from engine.domain.refusals import Conflict, NotFound
from engine.ports import BlobCorrupt, TrainedModel
from engine.store.lines import add_ontology, get_line, get_model, line_by_name, model_files, ontology_of
from engine.store.tables.models import ModelVersion

Weights = Callable[..., TrainedModel]


def test_versions_made_at_once_are_numbered_without_gap_or_double(loop: Loop, trained: Weights) -> None:
    model = trained(0)
    start = threading.Barrier(4)

    def add() -> None:
        start.wait()
        loop.register(model)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(version.number for version in loop.all(ModelVersion)) == [1, 2, 3, 4]


def test_an_ontology_version_is_never_changed(loop: Loop) -> None:
    with loop.database.unit() as unit:
        same = add_ontology(unit.session, loop.project_id, loop.ontology)
        assert same.id == loop.line().ontology_id
        with pytest.raises(Conflict, match="says something else"):
            add_ontology(unit.session, loop.project_id, Ontology("roads", 1, (ROAD,)))
        newer = add_ontology(unit.session, loop.project_id, Ontology("roads", 2, (ROAD,)))
        assert newer.id != same.id
        assert ontology_of(unit.session, same.id) == Ontology("roads", 1, (ROAD, LIGHT))


def test_what_is_not_there_is_said_with_what_is(loop: Loop) -> None:
    with loop.database.read() as session:
        assert line_by_name(session, loop.project_id, "roads-0").id == loop.line_id
        with pytest.raises(NotFound, match="'lanes'") as refused:
            line_by_name(session, loop.project_id, "lanes")
        assert "roads-0" in refused.value.hint
        for get in (get_line, get_model):
            with pytest.raises(NotFound):
                get(session, uuid.uuid4())


def test_an_artifact_is_opened_only_as_it_was_judged(loop: Loop, trained: Weights) -> None:
    first, second = loop.register(trained(0)), loop.register(trained(30))
    with loop.database.read() as session:
        files = model_files(session, loop.blobs, first)
        assert files.weights.read_bytes() == trained(0).files.weights.read_bytes()
        assert files.config["heads"] == trained(0).files.config["heads"]
    with loop.database.unit() as unit:
        unit.session.execute(
            text(
                "UPDATE model_artifacts SET blob_id = other.blob_id FROM model_artifacts AS other "
                "WHERE model_artifacts.model_version_id = :a AND other.model_version_id = :b"
            ),
            {"a": first, "b": second},
        )
        unit.commit()
    with loop.database.read() as session:
        with pytest.raises(Conflict, match="other weights"):
            model_files(session, loop.blobs, first)
        path = model_files(session, loop.blobs, second).weights
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1] + b"\x00")
        with pytest.raises(BlobCorrupt):
            model_files(session, loop.blobs, second)
