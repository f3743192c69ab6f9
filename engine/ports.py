"""The outside world, as the stages see it. Adapters implement these; stages never import an adapter."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from engine.domain.answers import Answer
from engine.domain.ontology import Head, Ontology

# --- blobs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredBlob:
    """Bytes that are durable: their sha256 (hex) and size in bytes."""

    sha256: str
    size: int


class BlobNotFound(LookupError):
    """No such blob in the store."""


class BlobCorrupt(RuntimeError):
    """A blob's bytes no longer hash to its name."""


class BlobStore(Protocol):
    """Content-addressed bytes. A blob is never changed."""

    def put(self, source: BinaryIO | bytes) -> StoredBlob:
        """Stream `source` in while hashing, durable on return; the same bytes twice are one blob."""

    def read(self, sha256: str) -> bytes:
        """The whole blob, verified. Raises BlobNotFound, BlobCorrupt."""

    def open(self, sha256: str) -> BinaryIO:
        """A seekable reader, not verified. Raises BlobNotFound."""

    def local_path(self, sha256: str) -> Path:
        """A path that a decoder can open; a remote store fetches it to its cache. Raises BlobNotFound."""

    def exists(self, sha256: str) -> bool: ...

    def remove(self, sha256: str, settled_s: float = 0.0) -> bool:
        """Remove the bytes that no row points to any more; gone is gone.

        False, with nothing removed, where they were put again less than `settled_s` seconds ago: whoever put them may
        be about to point a row to them, so look again later.
        """


class LocalCopies(Protocol):
    """What this machine keeps beside the blob store for its own convenience."""

    def forget_frames(self, frame_ids: Iterable[uuid.UUID]) -> int:
        """Remove the pictures made of these frames; returns how many there were."""

    def forget_run(self, run_id: uuid.UUID) -> bool:
        """Remove the folder that a run was laid out in; returns whether there was one."""


# --- video ----------------------------------------------------------------------------------------------------------


class MediaRejected(ValueError):
    """The file is not media that we take; the message says what is wrong with it and what to do."""


@dataclass(frozen=True)
class StreamProbe:
    """What the headers and packets of one video file say. `pts` are in units of the time base, ascending."""

    codec: str
    width: int
    height: int
    time_base_num: int
    time_base_den: int
    pts: tuple[int, ...]
    duration_s: float


class MediaProbe(Protocol):
    """Looks into untrusted media in a child process with limits."""

    def probe(self, path: Path) -> StreamProbe:
        """Raises MediaRejected."""


@dataclass(frozen=True)
class Picture:
    """One decoded frame: `rgb` is C-ordered uint8, height * width * 3 bytes."""

    pts: int
    width: int
    height: int
    rgb: bytes


class FrameReader(Protocol):
    """Decodes chosen frames of untrusted media in a child process with limits."""

    def frames(self, path: Path, pts: Sequence[int]) -> Iterator[Picture]:
        """The frames at exactly these PTS, ascending. Raises MediaRejected when one is not to be had."""

    def encode_png(self, picture: Picture) -> bytes: ...

    def decode_image(self, data: bytes) -> Picture:
        """A PNG or JPEG; its pts is 0. Raises MediaRejected."""


# --- models ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelFiles:
    """An artifact that ships, on this machine's disk: what a scorer opens.

    `sha256` is that of the weights, empty where nobody has hashed them yet; `heads` those of the ontology that the
    model answers. Both are known of every model version.
    """

    format: str  # a ModelFormat
    weights: Path
    config: Mapping[str, Any]
    sha256: str = ""
    heads: Sequence[Head] = ()


@dataclass(frozen=True)
class FrameScore:
    """What a model says of one picture.

    `answers` by head; `uncertainty` by head, a non-negative scalar that grows as the model is less sure;
    `embedding` is the pooled trunk, 128 numbers of unit length.
    """

    answers: Mapping[str, Answer]
    uncertainty: Mapping[str, float]
    embedding: tuple[float, ...]


class Scorer(Protocol):
    """A model that answers for pictures. One scorer may be asked for several models and keeps what it has loaded."""

    def score(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[FrameScore]:
        """One FrameScore per picture, in order."""

    def embed(self, model: ModelFiles, pictures: Sequence[Picture]) -> list[tuple[float, ...]]:
        """The embeddings alone, which need the trunk and no head."""


class ScorerUnavailable(ConnectionError):
    """A scorer elsewhere can't be reached or failed on its side: try again later."""


class RemoteScorer(Protocol):
    """A model at somebody's URL."""

    def enrol(self, config: Mapping[str, Any], heads: Sequence[Head], probes: Sequence[str]) -> bytes:
        """A document of what it is: its config, and its answers to the pictures of these hashes. Raises Invalid,
        ScorerUnavailable."""


class ModelCheck(Protocol):
    """Looks into a model that was made elsewhere, before it becomes a version."""

    def check(self, model: ModelFiles) -> None:
        """Raises Invalid, saying what is wrong, unless the model can be asked and answers as its config declares."""


@dataclass(frozen=True)
class TrainingSample:
    """One labelled picture. A head that is not in `labels` is unlabelled there, which is never "empty".

    `annotated_classes` by head: the classes a labeler looked for; for a head that is absent, all of its classes.
    """

    id: str
    picture: Path
    labels: Mapping[str, Answer]
    annotated_classes: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingPlan:
    """All that a run needs; the same plan gives the same run. `trainer` is the name of the one that is to do it."""

    heads: Sequence[Head]
    seed: int
    steps: int
    batch_size: int
    height: int
    width: int
    backbone: str
    learning_rate: float
    checkpoint_every: int
    threads: int
    trainer: str = "hydranet"
    warm_start: ModelFiles | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingProgress:
    """One report of a running training."""

    step: int
    steps: int
    losses: Mapping[str, float]


@dataclass(frozen=True)
class TrainedModel:
    """What a finished run leaves: the artifact on disk, and what it measured of itself."""

    files: ModelFiles
    metrics: Mapping[str, Any]


class TrainingRefused(RuntimeError):
    """The run can't go on, and going again won't help: preflight failed, or the loss was not finite."""


class Trainer(Protocol):
    """Runs a training in a child that dies with us and resumes where an earlier attempt of the folder got to."""

    def train(
        self, folder: Path, plan: TrainingPlan, samples: Iterable[TrainingSample], attempt: int, heartbeat: Heartbeat
    ) -> TrainedModel:
        """Raises TrainingRefused; whatever `heartbeat` raises ends the child and is passed on."""


class Heartbeat(Protocol):
    """Called at every checkpoint and every few seconds; raises LeaseLost when the work is no longer ours."""

    def __call__(self, progress: TrainingProgress | None = None) -> None: ...


# --- the label tool -------------------------------------------------------------------------------------------------


class LabelToolUnavailable(ConnectionError):
    """The label tool can't be reached or failed on its side: try again later."""


class LabelToolRefused(RuntimeError):
    """The label tool won't take this, now or later."""


@dataclass(frozen=True)
class TaskDraft:
    """A task to be made. `key` is our intent's id: it goes into the task's data, and a retry finds the task by it."""

    key: str
    picture_url: str
    width: int
    height: int
    heads: Sequence[str]
    predictions: Mapping[str, Answer]  # empty for control and golden: they are labelled blind
    model_version: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)  # shown beside the picture: campaign, reason


@dataclass(frozen=True)
class ToolTask:
    """A task as the label tool has it."""

    id: int
    key: str


class AnnotationOutcome:
    """What a person did with a task."""

    SUBMITTED = "submitted"
    SKIPPED = "skipped"
    UNUSABLE = "unusable"


@dataclass(frozen=True)
class ToolAnnotation:
    """What one person said, read from the label tool.

    `answers` holds each head that the person answered, an empty answer included; `payload` is as received.
    `problem` says why an annotation could not be understood; then `answers` is empty and nothing may be accepted.
    """

    id: int
    task_id: int
    task_key: str
    annotator: str
    outcome: str
    answers: Mapping[str, Answer]
    lead_time_s: float | None
    prediction_shown: bool
    updated_at: str
    payload: Mapping[str, Any]
    problem: str | None = None


class LabelBridge(Protocol):
    """The label tool: one of its projects per ontology version."""

    def ensure_project(self, ontology: Ontology) -> int:
        """The tool's project for this ontology, made (with its config) when there is none."""

    def create_tasks(self, tool_project: int, ontology: Ontology, drafts: Sequence[TaskDraft]) -> None:
        """Make the tasks, in order, in one call. It may have happened even if it raises LabelToolUnavailable: look."""

    def tasks_by_key(self, tool_project: int, keys: Sequence[str]) -> dict[str, list[ToolTask]]:
        """The live tasks of these keys, lowest id first; more than one where a timed-out call landed late."""

    def delete_tasks(self, task_ids: Sequence[int]) -> None:
        """Gone is gone: a task that isn't there is no error."""

    def annotations(
        self, tool_project: int, ontology: Ontology, updated_since: str | None = None
    ) -> Iterator[ToolAnnotation]:
        """Every annotation; given `updated_since` (the tool's clock), those of tasks changed at or after it."""

    def task_annotations(
        self, tool_project: int, ontology: Ontology, updated_since: str | None = None
    ) -> Iterator[tuple[ToolTask, list[ToolAnnotation]]]:
        """The tasks changed since, each with all the annotations that it has now: one that is missing was deleted."""

    def annotation_ids(
        self, tool_project: int, updated_since: str | None = None
    ) -> Iterator[tuple[ToolTask, list[int]]]:
        """The same by the ids alone."""

    def task_url(self, tool_project: int, task_id: int) -> str: ...


# --- privacy, dispatch, time ----------------------------------------------------------------------------------------


class Redactor(Protocol):
    """Nothing that a person will see leaves without passing here (faces, plates)."""

    def redact(self, picture: Picture) -> Picture: ...


class Dispatcher(Protocol):
    """Tells a worker that a job is due. A hint: it never blocks and never raises; a lost one costs only time."""

    def dispatch(self, job_kind: str, job_id: str, priority: int) -> None: ...
