"""A golden set and the gate's reports on it, passed and refused."""

from __future__ import annotations

import hashlib
from typing import Any

from engine.store.predictions import MEDIA_TYPE
from engine.store.tables.labels import GoldenSet, GoldenSubject
from engine.store.tables.metadata import new_id
from engine.store.tables.models import GateReport, GoldenEvidence, Promotion, SeedNoise
from tests.services.dashboard.fleet_making import HEADS, Making, ago


def reports(making: Making) -> None:
    golden = making.add(
        GoldenSet(
            id=new_id(),
            name="everyday",
            version=1,
            line_id=making.line.id,
            ontology_id=making.ontology_id,
            content_sha256=hashlib.sha256(b"golden").hexdigest(),
            header={},
            manifest_blob_id=making.blob(b"golden", "application/vnd.apache.parquet"),
            blind=True,
            looks=5,
            **making.own,
        )
    )
    for subject in making.golden:
        making.session.add(GoldenSubject(golden_set_id=golden.id, subject_id=subject, split="golden", **making.own))
    metrics = {"driveable": "iou", "lanes": "line_f1", "objects": "ap50", "signs": "ap50", "depth": "abs_rel"}
    start = {"driveable": 0.86, "lanes": 0.31, "objects": 0.42, "signs": 0.28, "depth": 0.24}
    gain = {"driveable": 0.025, "lanes": 0.13, "objects": 0.06, "signs": 0.05, "depth": 0.03}
    champion: int | None = None
    values = dict.fromkeys(HEADS, 0.0)
    for number, model_id in enumerate(making.fleet.model_ids, start=1):
        passed = number in (1, 2, 4)
        rows, new = [], {}
        for head in HEADS:
            higher = head != "depth"
            step = gain[head] if passed else (-0.2 if number == 5 else -gain[head] * (2 if head == "signs" else -0.2))
            baseline = start[head] * (0.6 if higher else 1.9)
            reference = values[head] if champion else baseline
            better = step if champion else abs(start[head] - baseline)
            new[head] = reference + better * (1 if higher else -1)
            rows += _rows(making, head, metrics[head], new[head], reference, better, champion is not None)
        reasons = [
            {"head": r["head"], "rule": r["rule"], "held": r["passed"], "text": _sentence(r)}
            for r in rows
            if r["slice"] is None
        ]
        waived = number == 1
        waivers = [{"name": "within_one_drive", "by": "token:admin", "why": "one golden drive is all there is"}]
        passed = all(reason["held"] for reason in reasons)
        report = making.add(
            GateReport(
                id=new_id(),
                line_id=making.line.id,
                challenger_id=model_id,
                challenger_weights_sha256=hashlib.sha256(f"w{number}".encode()).hexdigest(),
                champion_id=making.fleet.model_ids[champion - 1] if champion else None,
                golden_set_id=golden.id,
                golden_look=number,
                target_heads=["lanes"],
                verdict="passed" if passed else "refused",
                reasons=[reason["text"] for reason in reasons if not reason["held"]],
                waiver={"waivers": waivers} if waived else None,
                report={
                    "passed": passed,
                    "kind": "promote" if passed else "refuse",
                    "scope": "within one drive" if waived else "golden set",
                    "reasons": reasons,
                    "rows": rows,
                },
                created_at=ago(5.3 - number),
                **making.own,
            )
        )
        making.fleet.report_ids.append(report.id)
        making.add(
            GoldenEvidence(
                id=new_id(),
                model_version_id=model_id,
                golden_set_id=golden.id,
                weights_sha256="0" * 64,
                statistics_blob_id=making.blob(b"statistics", "application/zlib"),
                predictions_blob_id=making.blob(b"predictions", MEDIA_TYPE),
                metrics=new,
                **making.own,
            )
        )
        if passed:
            making.add(
                Promotion(
                    id=new_id(),
                    line_id=making.line.id,
                    act="promote",
                    from_model_id=report.champion_id,
                    to_model_id=model_id,
                    gate_report_id=report.id,
                    actor="gate",
                    at=ago(5.25 - number),
                    **making.own,
                )
            )
            champion, values = number, new
    for head in HEADS:
        making.add(
            SeedNoise(
                id=new_id(),
                line_id=making.line.id,
                golden_set_id=golden.id,
                head=head,
                model_version_ids=[],
                values=[[0.801, 0.812, 0.794]],
                **making.own,
            )
        )


def _rows(
    making: Making, head: str, metric: str, value: float, reference: float, better: float, champion: bool
) -> list[dict[str, Any]]:
    rule = "floor" if not champion else "superiority" if head == "lanes" else "non_inferiority"
    bound = -0.024 if rule == "non_inferiority" else 0.0
    rows = []
    for part, groups in ((None, 44), ("time_of_day=day", 30), ("time_of_day=night", 14), ("weather=fog", 9)):
        wide = 0.02 * (44 / groups) ** 0.5
        shift = 0.0 if part is None else float(making.rng.normal(0, 0.02))
        judged = part is None
        low = better + shift - wide
        rows.append(
            {
                "head": head,
                "slice": part,
                "rule": rule if judged else "reported",
                "metric": metric,
                "challenger": value + shift,
                "reference": reference,
                "reference_name": "champion" if champion else "dumb baseline",
                "difference": better + shift,
                "low": low,
                "high": better + shift + wide,
                "bound": bound,
                "passed": not judged or (low > 0 if bound == 0 else low >= bound),
                "groups": groups,
                "subjects": groups * 4,
                "missing": 0,
                "resampled": "split group",
            }
        )
    return rows


def _sentence(row: dict[str, Any]) -> str:
    held = "held" if row["passed"] else "not held"
    wanted = {"superiority": "must be above 0 on a target", "floor": "must be above 0"}.get(
        row["rule"], f"must not be below {row['bound']:+.4f}"
    )
    return (
        f"head {row['head']!r}: {row['metric']} {row['challenger']:.4f}, "
        f"{row['reference_name']} {row['reference']:.4f}: "
        f"difference {row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}] over {row['groups']} "
        f"{row['resampled']}s; the lower bound {wanted}: {held}"
    )
