"""Clips: what the fleet sent, how unsure the models were of it, and what became of it."""

from __future__ import annotations

import uuid
from collections import defaultdict
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from engine.queries import clips as views
from engine.queries import erasures
from engine.queries.model_page import numbers_of
from services.dashboard.page_route import PageRoute
from services.dashboard.rendering import render
from services.dashboard.visitor import Visitor, seeing

router = APIRouter(prefix="/clips", route_class=PageRoute)

CLIPS = 50
STATES = ("received", "scored", "erased")
MOST_FRAMES = 60

Reader = Annotated[Visitor, Depends(seeing("clips:read"))]


@router.get("")
def clips(
    request: Request,
    who: Reader,
    state: str = "",
    split: str = "",
    vehicle: str = "",
    drive: str = "",
    after: uuid.UUID | None = None,
) -> Response:
    """Clips in the order of their arrival."""
    narrowed = {"state": state, "split": split, "vehicle": vehicle, "drive": drive}
    with who.wiring.database.read() as session:
        found = views.listing(
            session,
            who.principal.project_id,
            limit=CLIPS + 1,
            after=after,
            **{key: value or None for key, value in narrowed.items()},
        )
    shown = found[:CLIPS]
    given = {key: value for key, value in narrowed.items() if value}
    return render(
        request,
        "clips.html",
        visitor=who,
        clips=shown,
        narrowed=narrowed,
        states=STATES,
        filtered=bool(given),
        first=f"/clips?{urlencode(given)}" if after else None,
        next=f"/clips?{urlencode({**given, 'after': shown[-1]['id']})}" if found[CLIPS:] else None,
    )


@router.get("/{clip_id}")
def clip(request: Request, clip_id: uuid.UUID, who: Reader, model: uuid.UUID | None = None) -> Response:
    """One clip, through the eyes of one model version: the newest that has scored it, or the one asked for."""
    with who.wiring.database.read() as session:
        erasure = erasures.of_clip(session, who.principal.project_id, clip_id)
        if erasure is not None:
            return render(request, "erased.html", status=410, visitor=who, clip_id=clip_id, erasure=erasure)
        found = views.detail(session, who.principal.project_id, clip_id)
        numbers = numbers_of(
            session, [identity for used in found["lineage"]["used_by"] for identity in used["model_version_ids"]]
        )
    scorings = found["scores"]
    scoring = next((s for s in scorings if s["model_version_id"] == model), scorings[-1] if scorings else None)
    chosen = {item["subject_id"]: item for item in found["chosen"]}
    labels: dict[uuid.UUID, list[dict[str, Any]]] = defaultdict(list)
    for label in found["lineage"]["labels"]:
        labels[label["subject_id"]].append(label)
    frames = scoring["frames"] if scoring else []
    return render(
        request,
        "clip.html",
        visitor=who,
        clip=found,
        scoring=scoring,
        frames=frames[:MOST_FRAMES],
        frame_count=len(frames),
        chosen=chosen,
        labels=labels,
        numbers=numbers,
        heads=sorted({told["head"] for frame in frames for told in frame["heads"]}),
        timeline=_timeline(frames, found["start_ns"]),
        size=(found["streams"][0]["width"], found["streams"][0]["height"]) if found["streams"] else (16, 9),
    )


def _timeline(frames: list[dict[str, Any]], start_ns: int) -> list[dict[str, Any]]:
    """By stream: seconds into the clip, and by head the quantiles at these instants."""
    streams: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for frame in frames:
        streams[frame["stream"]].append(frame)
    told = []
    for name, of_stream in streams.items():
        heads = sorted({head["head"] for frame in of_stream for head in frame["heads"]})
        by_head = {head: [_quantile(frame, head) for frame in of_stream] for head in heads}
        seconds = [round((frame["capture_ns"] - start_ns) / 1e9, 3) for frame in of_stream]
        told.append({"stream": name, "seconds": seconds, "heads": by_head})
    return told


def _quantile(frame: dict[str, Any], head: str) -> float | None:
    return next((told["quantile"] for told in frame["heads"] if told["head"] == head), None)
