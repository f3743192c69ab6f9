"""The clip manifest as it is posted."""

from __future__ import annotations

from datetime import UTC
from typing import Annotated, Literal

from pydantic import AwareDatetime, ConfigDict, Field, StringConstraints, model_validator

from engine.domain.manifest import ClipManifest, SensorCalibration, StreamManifest
from services.api.schemas.fields import JsonObject, Name, OffsetNs, Pixels, Posted, Sha256, Text, TimeNs, storable

Row = tuple[float, float, float, float]


class VehicleIn(Posted):
    """The vehicle, by the fleet's own id."""

    external_id: Name
    platform: Name


class DriveIn(Posted):
    """The trip. Clips of one split group never stand on both sides of a split; without one, each drive is its own."""

    external_id: Name
    split_group: Name | None = None
    split: Literal["pool", "golden"] | None = Field(
        None, description="Decided with the group's first clip; pool where nobody says otherwise."
    )


class OnboardIn(Posted):
    """What ran in the vehicle."""

    model_version: Text | None = None
    software: Text | None = None


class IntrinsicsIn(Posted):
    """In pixels; `distortion` in the order of the camera model."""

    fx: float
    fy: float
    cx: float
    cy: float
    distortion: list[float] = Field(default_factory=list, max_length=16)


class CalibrationIn(Posted):
    """Vehicle axes: x forward, y left, z up, metres."""

    camera_model: Literal["pinhole", "fisheye"]
    intrinsics: IntrinsicsIn
    vehicle_from_sensor: tuple[Row, Row, Row, Row] = Field(description="4x4, row-major.")
    shutter: Literal["global", "rolling"] = "global"


class StreamIn(Posted):
    """One camera's recording; its file is the part named `stream:<name>`."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    kind: Literal["camera"] = "camera"
    sha256: Sha256 | None = Field(None, description="If given, the bytes must hash to it.")
    start_offset_ns: OffsetNs = 0
    calibration: CalibrationIn | None = None
    codec: Name | None = Field(None, description="If given, the media must have it: h264, hevc, av1, …")
    width: Pixels | None = Field(None, description="If given, the media must have it, in pixels; `height` likewise.")
    height: Pixels | None = None
    fps: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        None, description="If given, the frames' times must come to it within a tenth."
    )


class TelemetryIn(Posted):
    """One sample. Further numbers may stand beside the known ones, SI units in their names."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False, frozen=True)
    __pydantic_extra__: dict[str, float]

    t_ns: TimeNs
    speed_mps: float | None = None
    yaw_rate_radps: float | None = None

    @model_validator(mode="after")
    def _storable(self) -> TelemetryIn:
        storable(self.__pydantic_extra__)
        return self


class EventIn(Posted):
    """Something that the vehicle noticed."""

    t_ns: TimeNs
    name: Name


class ManifestIn(Posted):
    """All that is said of a clip."""

    vehicle: VehicleIn
    drive: DriveIn
    external_id: Name
    start_ns: TimeNs
    clock_source: Literal["gps", "ptp", "ntp", "device", "unknown"] = "unknown"
    clock_error_ns: TimeNs | None = None
    onboard: OnboardIn = OnboardIn()
    streams: list[StreamIn] = Field(min_length=1, max_length=64)
    telemetry: list[TelemetryIn] = Field(default_factory=list, max_length=100_000)
    events: list[EventIn] = Field(default_factory=list, max_length=10_000)
    tags: JsonObject = Field(default_factory=dict)
    licence: Name
    allowed_purposes: list[Name] = Field(default_factory=lambda: ["training", "evaluation"], max_length=32)
    region: Text | None = None
    retain_until: AwareDatetime | None = None

    @model_validator(mode="after")
    def _streams_differ(self) -> ManifestIn:
        names = [stream.name for stream in self.streams]
        if len(set(names)) != len(names):
            raise ValueError("two streams have the same name")
        return self

    def to_domain(self) -> ClipManifest:
        """The manifest in the engine's terms."""
        return ClipManifest(
            vehicle=self.vehicle.external_id,
            platform=self.vehicle.platform,
            drive=self.drive.external_id,
            split_group=self.drive.split_group or f"{self.vehicle.external_id}/{self.drive.external_id}",
            split=self.drive.split,
            external_id=self.external_id,
            start_ns=self.start_ns,
            clock_source=self.clock_source,
            clock_error_ns=self.clock_error_ns,
            streams=tuple(_stream(stream) for stream in self.streams),
            licence=self.licence,
            allowed_purposes=tuple(self.allowed_purposes),
            onboard_model_version=self.onboard.model_version,
            onboard_software=self.onboard.software,
            region=self.region,
            retain_until=self.retain_until.astimezone(UTC) if self.retain_until else None,
            tags=self.tags,
            telemetry=tuple(sample.model_dump(exclude_none=True) for sample in self.telemetry),
            events=tuple(event.model_dump() for event in self.events),
            document=self.model_dump(mode="json", exclude_defaults=True),
        )


def _stream(stream: StreamIn) -> StreamManifest:
    calibration = stream.calibration
    return StreamManifest(
        name=stream.name,
        kind=stream.kind,
        sha256=stream.sha256,
        start_offset_ns=stream.start_offset_ns,
        codec=stream.codec,
        width=stream.width,
        height=stream.height,
        fps=stream.fps,
        calibration=SensorCalibration(
            camera_model=calibration.camera_model,
            intrinsics=calibration.intrinsics.model_dump(),
            vehicle_from_sensor=calibration.vehicle_from_sensor,
            shutter=calibration.shutter,
        )
        if calibration
        else None,
    )
