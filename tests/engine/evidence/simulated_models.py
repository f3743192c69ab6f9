"""Simulated evidence: models of known quality on a golden set whose drives are each easier or harder."""

from dataclasses import dataclass, replace

import numpy as np

from engine.domain.ontology import Head, Kind, LabelTool
from engine.evidence.gate import GateVerdict
from engine.evidence.gate_input import GateInput, GateRules, GoldenSubject, ModelEvidence
from engine.evidence.noise import Margin
from engine.evidence.statistic import Statistic

OBJECTS = Head("objects", Kind.BOXES, ("car", "cyclist"))
AREA = Head("area", Kind.MASK, ("road",))
DEPTH = Head("depth", Kind.DENSE_SCALAR, label_tool=LabelTool.MACHINE, unit="m")
SIGN = Head("sign", Kind.CHOICE, ("stop", "yield"))
HASH = "a" * 64
MARGINS = {"objects": 0.1, "area": 0.06, "depth": 0.06, "sign": 0.15}


@dataclass(frozen=True)
class World:
    """A golden set: `groups` drives of `per_group` subjects, in two clips each."""

    seed: int
    groups: int = 50
    per_group: int = 2
    heads: tuple[Head, ...] = (AREA, DEPTH, SIGN)

    @property
    def golden(self) -> list[GoldenSubject]:
        return [
            GoldenSubject(
                id=f"s{i:04}",
                split_group=f"d{i // self.per_group}",
                clip_id=f"d{i // self.per_group}-c{i % 2}",
                heads=frozenset(head.name for head in self.heads),
                slices=frozenset({"time_of_day=night"} if i // self.per_group % 2 else {"time_of_day=day"}),
            )
            for i in range(self.groups * self.per_group)
        ]

    def model(self, name: str, model_seed: int, **skill: float) -> ModelEvidence:
        """A model whose skill differs from the usual by `skill` for a head: above 0 is better."""
        difficulty = np.random.default_rng([self.seed, 0]).normal(0, 0.4, size=self.groups).repeat(self.per_group)
        generator = np.random.default_rng([self.seed, 1, model_seed])
        truth = np.random.default_rng([self.seed, 2]).integers(0, 4, size=(self.groups * self.per_group, 2))
        golden = self.golden
        statistics = {}
        for head in self.heads:
            moods = generator.normal(0, 0.2, size=self.groups).repeat(self.per_group)
            level = skill.get(head.name, 0.0) - difficulty + moods
            statistics[head.name] = {
                subject.id: _answered(head, generator, float(value), counts)
                for subject, value, counts in zip(golden, level, truth, strict=True)
            }
        return ModelEvidence(name, HASH, frozenset(head.name for head in self.heads), statistics)

    def question(self, challenger: ModelEvidence, champion: ModelEvidence | None, **changes: object) -> GateInput:
        settings: dict[str, object] = {
            "heads": self.heads,
            "golden_hash": HASH,
            "golden": self.golden,
            "challenger": challenger,
            "champion": champion,
            "baseline": None,
            "targets": [self.heads[0].name],
            "margins": {head.name: Margin(MARGINS[head.name], 0.02, 2, 3) for head in self.heads},
            "seed": self.seed,
            "rules": GateRules(resamples=400),
            **changes,
        }
        return GateInput(**settings)  # type: ignore[arg-type]


def _answered(head: Head, generator: np.random.Generator, level: float, truth: np.ndarray) -> Statistic:
    chance = 1 / (1 + np.exp(-1.0 - level))
    noise = float(generator.normal(0, 0.05))
    if head.kind is Kind.MASK:
        share = float(np.clip(chance + noise, 0, 1))
        return {"intersection": [1000 * share], "union": [1000.0], "truth": [900.0], "missing": [0.0]}
    if head.kind is Kind.DENSE_SCALAR:
        error = float(np.clip(0.25 - 0.06 * level + noise, 0.01, None))
        return {"relative": [100 * error], "count": [100.0], "missing": [0.0]}
    if head.kind is Kind.CHOICE:
        return {"right": [float(generator.random() < chance)], "count": [1.0], "missing": [0.0]}
    labels, scores, hits = [], [], []
    for index, count in enumerate(truth):
        found = generator.random(count) < chance
        wrong = generator.random(2) > chance
        hits += [1.0] * int(found.sum()) + [0.0] * int(wrong.sum())
        scores += generator.normal(0.7, 0.15, size=int(found.sum())).tolist()
        scores += generator.normal(0.5, 0.15, size=int(wrong.sum())).tolist()
        labels += [float(index)] * int(found.sum() + wrong.sum())
    return {
        "class": labels,
        "score": scores,
        "tp": hits,
        "n_truth": [float(count) for count in truth],
        "missing": [0.0],
    }


def broken(verdict: GateVerdict) -> list[tuple[str | None, str]]:
    return [(reason.head, reason.rule) for reason in verdict.reasons if not reason.held]


def without(model: ModelEvidence, head: str, subject: str | None = None) -> ModelEvidence:
    statistics = {name: dict(by_subject) for name, by_subject in model.statistics.items()}
    if subject is None:
        del statistics[head]
    else:
        del statistics[head][subject]
    return replace(model, statistics=statistics)


def put(model: ModelEvidence, head: str, **values: list[float]) -> ModelEvidence:
    changed = {subject: {**statistic, **values} for subject, statistic in model.statistics[head].items()}
    return replace(model, statistics={**model.statistics, head: changed})
