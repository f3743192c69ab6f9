"""Commands for each part of the loop, for those who turn it by hand."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Annotated, Literal

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Line = Annotated[str, typer.Option(help="The model line.")]
ACTOR = "cli"

imports = typer.Typer(help="Bring recordings and labels of a known format in, through the API.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(ingest)
    app.add_typer(imports, name="import")
    app.command()(queue)
    app.command()(models)
    app.command("golden")(golden)
    app.command()(retrain)
    app.command()(judge)
    app.command()(promote)
    app.command()(rollback)


def ingest(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Video files, a clip each.")],
    vehicle: Annotated[str, typer.Option(help="The vehicle's external id.")] = "uploaded",
    drive: Annotated[str | None, typer.Option(help="The drive's external id; by default the file's name.")] = None,
    licence: Annotated[str, typer.Option(help="Under what licence the recording may be used.")] = "unknown",
    as_json: AsJson = False,
) -> None:
    """Send video files through the API, as a vehicle would. The same file again is the same clip."""
    from services.cli import importing, output

    rows = importing.send_files(files, vehicle, drive, licence)
    output.show(rows, ["file", "clip", "state"], "Clips", as_json)


@imports.command()
def camvid(
    path: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The folder with one folder a sequence.")],
    drive: Annotated[list[str] | None, typer.Option(help="Only this sequence; repeat it. By default all.")] = None,
    golden: Annotated[
        list[str] | None, typer.Option(help="This sequence is golden: never trained on. Repeat it.")
    ] = None,
    labels: Annotated[bool, typer.Option(help="Import the labels too.")] = True,
    as_json: AsJson = False,
) -> None:
    """Import CamVid: each sequence is a drive, cut into clips of 10 frames or fewer."""
    from services.cli import importing, output

    rows = importing.import_camvid(path, drive, golden or [], labels)
    output.show(rows, ["drive", "split", "clips", "frames", "labels"], "Imported", as_json)


def queue(
    state: Annotated[
        Literal["queued", "open", "labelled", "dropped"] | None, typer.Option(help="Only those in this state.")
    ] = None,
    campaign: Annotated[str | None, typer.Option(help="Only this campaign's items.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The first so many.")] = 30,
    as_json: AsJson = False,
) -> None:
    """Show the label queue in its order, and why each frame is in it."""
    from engine.queries import queue as view
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        rows = view.listing(session, project_id(session), limit=limit, state=state, campaign=campaign)
    shown = rows if as_json else [{**row, "reason": _reason(row["reason"], row["arm"])} for row in rows]
    output.show(shown, ["id", "campaign", "arm", "state", "priority", "heads", "reason"], "Label queue", as_json)


def models(
    line: Annotated[str | None, typer.Option(help="Only this line's.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The first so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List model versions with the ids that `judge` and `promote` take, and which is champion."""
    from engine.queries import models as view
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.read() as session:
        rows = view.versions(session, project_id(session), limit, line=line)
    output.show(rows, ["id", "line", "number", "origin", "is_champion", "created_at", "note"], "Models", as_json)


def golden(
    line: Line,
    name: Annotated[str, typer.Option(help="The golden set's name.")] = "golden",
    as_json: AsJson = False,
) -> None:
    """Freeze the labels of the golden drives into a golden set, on which the gate judges from now on."""
    from engine.stages.freeze import freeze_golden
    from engine.store.lines import line_by_name
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring:
        with wiring.database.read() as session:
            found = line_by_name(session, project_id(session), line)
        frozen = freeze_golden(wiring.database, wiring.blobs, wiring.reader, found.id, name)
    row = {
        "golden_set": name,
        "version": frozen.number,
        "subjects": frozen.subjects,
        "labels": frozen.labels,
        "content_sha256": frozen.content_sha256,
        "new": frozen.created,
    }
    output.show([row], list(row), "Golden set", as_json)


def retrain(
    line: Line,
    target: Annotated[list[str] | None, typer.Option(help="A head that has to get better; repeat it.")] = None,
    scratch: Annotated[bool, typer.Option(help="Start from nothing instead of from the champion.")] = False,
    seed: Annotated[int | None, typer.Option(help="The run's seed.")] = None,
    noise_seed: Annotated[
        list[int] | None, typer.Option(help="Train again under this seed, to measure the noise; repeat it.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps, instead of the line's own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Freeze what is labelled now, and train a challenger on it; the gate judges it when it is done."""
    from engine.stages.retrain import request
    from engine.store.lines import line_by_name
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.unit() as unit:
        found = line_by_name(unit.session, project_id(unit.session), line)
        job = request(
            unit,
            found.id,
            target_heads=target or [],
            start="scratch" if scratch else "warm",
            seed=seed,
            noise_seeds=noise_seed or [],
            overrides={"steps": steps} if steps else {},
        )
        unit.commit()
    _show_job(job, "freeze", as_json)


def judge(
    model: Annotated[uuid.UUID, typer.Argument(help="The model version's id.")],
    target: Annotated[
        list[str] | None, typer.Option(help="For a model made elsewhere: a head it must be better on.")
    ] = None,
    waive: Annotated[
        list[str] | None,
        typer.Option(help="Waive a rule, on record: within_one_drive, retired_head:HEAD or unlearnt_head:HEAD."),
    ] = None,
    why: Annotated[str | None, typer.Option(help="Why it is waived.")] = None,
    as_json: AsJson = False,
) -> None:
    """Have the gate compare a model version with the champion, on the newest golden set."""
    from engine.stages.gate_request import JudgeRequest, request_judgement
    from services.cli.reach import project_id, reached

    if waive and not why:
        raise typer.BadParameter("a waiver is kept with its reason: say --why")
    waivers = [_waiver(one, why or "") for one in waive or []]
    with reached() as wiring, wiring.database.unit() as unit:
        request = JudgeRequest(model, target_heads=target or [], waivers=waivers)
        job = request_judgement(unit, project_id(unit.session), request, ACTOR)
        unit.commit()
    _show_job(job, "judge", as_json)


def _waiver(given: str, why: str) -> dict[str, str]:
    """A waiver from RULE or RULE:HEAD."""
    from engine.evidence.gate_input import WaiverName

    name, _, head = given.partition(":")
    if name not in set(WaiverName):
        raise typer.BadParameter(f"there is no rule {name!r} to waive: give one of {', '.join(WaiverName)}")
    if not head and name != WaiverName.WITHIN_ONE_DRIVE:
        raise typer.BadParameter(f"{name} is waived for one head: give {name}:HEAD")
    return {"name": name, "why": why, **({"head": head} if head else {})}


def promote(
    model: Annotated[
        uuid.UUID, typer.Argument(help="The model version's id; its newest gate report must have passed.")
    ],
    as_json: AsJson = False,
) -> None:
    """Make a model version that the gate has passed the champion of its line."""
    from engine.stages.gate_request import request_promotion
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.unit() as unit:
        job = request_promotion(unit, project_id(unit.session), model, ACTOR)
        unit.commit()
    _show_job(job, "promote", as_json)


def rollback(
    line: Line,
    why: Annotated[str, typer.Option(help="Why; it is kept in the audit.")],
    to: Annotated[
        int | None, typer.Option(help="The number of an earlier champion; by default the one before.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an earlier champion the champion again, at once."""
    from engine.stages import promote as stage
    from engine.store.lines import line_by_name
    from services.cli import output
    from services.cli.reach import project_id, reached

    with reached() as wiring, wiring.database.unit() as unit:
        found = line_by_name(unit.session, project_id(unit.session), line)
        moved = stage.rollback(unit, found.id, ACTOR, why, to)
        unit.commit()
    row = {"line": moved.line, "from": moved.from_number, "to": moved.to_number, "clips_to_score": moved.rescored}
    output.show([row], list(row), "Rolled back", as_json)


def _reason(reason: dict[str, object], arm: str) -> str:
    if arm == "control":
        return "at random"
    quantile = reason.get("quantile")
    above = f" above {100 * float(quantile):.0f}% of the reference" if isinstance(quantile, float | int) else ""
    return f"{reason.get('head')} uncertain{above}"


def _show_job(job: uuid.UUID, kind: str, as_json: bool) -> None:
    from services.cli import output

    if as_json:
        output.print_json({"job": job, "kind": kind})
        return
    output.out.print(f"{kind} job {job} is due: follow it with `longtail status` or on the pages", highlight=False)
