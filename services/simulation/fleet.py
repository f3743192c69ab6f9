"""The simulated fleet's uplink: films clips and sends them and their sensor labels as a vehicle does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.domain.ontology import Ontology
from services.simulation import drive as drives
from services.simulation.drive import STREAM, ClipPlan, Drive
from services.uplink import Uplink, label_document


@dataclass(frozen=True)
class PostedClip:
    """A clip that the engine has acknowledged. `replayed`: it had it already, unchanged."""

    id: str
    drive: Drive
    plan: ClipPlan
    replayed: bool
    size: int


class Fleet(Uplink):
    """Sends what the simulated vehicles record. One instance may serve one thread."""

    def post_drives(self, planned: Iterable[Drive], *, model_version: str | None = None) -> Iterator[PostedClip]:
        """Film, encode and post every clip, in order; one that was posted before is a replay. Raises UplinkError."""
        for drive in planned:
            for clip in drive.clips:
                yield self.post_clip(drive, clip, model_version=model_version)

    def post_clip(self, drive: Drive, clip: ClipPlan, *, model_version: str | None = None) -> PostedClip:
        """Post one clip. Raises ClipConflictError on a 409, UplinkError on any other refusal."""
        media = drives.encode(drive, clip)
        manifest = drives.manifest(drive, clip, media, model_version=model_version)
        taken = self.send_clip(manifest, {STREAM: media})
        return PostedClip(taken.id, drive, clip, taken.replayed, len(media))

    def import_depth(
        self, posted: PostedClip, pts: Sequence[int], ontology: Ontology, *, dropout: float = 0.2, noise: float = 0.01
    ) -> None:
        """Import the depth that a lidar measured at these PTS of a posted clip. Raises UplinkError."""
        labels = [
            label_document(
                posted.id,
                STREAM,
                at,
                "depth",
                drives.lidar_depth(posted.drive, posted.plan, at, dropout=dropout, noise=noise),
            )
            for at in pts
        ]
        self.send_labels({"name": ontology.name, "version": ontology.version}, "sensor", labels)

    def import_truth(self, posted: PostedClip, pts: Sequence[int], ontology: Ontology, heads: Sequence[str]) -> None:
        """Import the exact truth of these heads, with the simulator as its source. Raises UplinkError."""
        labels = []
        for at in pts:
            answers = drives.truth(posted.drive, posted.plan, at)
            labels += [label_document(posted.id, STREAM, at, head, answers[head]) for head in heads]
        self.send_labels({"name": ontology.name, "version": ontology.version}, "simulator", labels)


def with_lidar(posted: Sequence[PostedClip], share: float, seed: int) -> list[PostedClip]:
    """The clips of the vehicles that carry a lidar: about `share` of them, the same for the same seed."""
    lots = [np.random.default_rng(np.random.SeedSequence([seed, clip.plan.seed])).random() for clip in posted]
    return [clip for clip, lot in zip(posted, lots, strict=True) if lot < share]
