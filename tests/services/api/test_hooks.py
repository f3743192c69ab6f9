"""The label tool's webhook: only a call that carries its key is a hint, and a hint makes one collection due."""

from __future__ import annotations

import uuid
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from engine.store.tables.labels import ToolProject
from engine.store.tables.metadata import new_id
from engine.store.tables.models import OntologyVersion
from engine.store.tables.work import Job
from services.hooks import LabelToolHook


def a_tool_project(api: Any) -> None:
    with Session(api.engine) as session:
        ontology = OntologyVersion(
            id=new_id(), project_id=api.project_id, name="driving", version=1, digest="0" * 64, document={}
        )
        session.add(ontology)
        session.flush()
        session.add(ToolProject(id=new_id(), project_id=api.project_id, ontology_id=ontology.id, tool_project=7))
        session.commit()


def collections(api: Any) -> int:
    with Session(api.engine) as session:
        return len(session.scalars(select(Job).where(Job.kind == "collect")).all())


def test_a_call_with_the_key_makes_a_collection_due_and_one_without_does_not(api: Any) -> None:
    a_tool_project(api)
    hook = LabelToolHook(api.settings)
    path = f"/hooks/label-studio/{api.project_id}"
    anybody = api.client(None)
    for headers, status in (({}, 401), (hook.headers(uuid.uuid4()), 403), ({"X-Longtail-Hook": "x"}, 403)):
        refused = anybody.post(path, headers=headers, json={"action": "ANNOTATION_CREATED"})
        assert refused.status_code == status
        assert refused.headers["content-type"] == "application/problem+json"
    assert collections(api) == 0
    assert hook.url(api.project_id).endswith(path)
    assert anybody.post(path, headers=hook.headers(api.project_id), json={"action": "x"}).status_code == 204
    assert collections(api) == 1
