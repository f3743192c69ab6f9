"""What stands around the ego vehicle at one instant: conditions, road and bodies made of painted cuboids."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.simulation.road import Road, RoadView

Colour = tuple[float, float, float]

OBJECT_CLASSES = ("car", "truck", "pedestrian", "bicyclist")
SIGN_CLASSES = ("stop", "yield", "speed_limit", "other", "railway_crossing")
RARE_SIGN = "railway_crossing"


@dataclass(frozen=True)
class Conditions:
    """Light and air. `fog_per_m` is the extinction coefficient; `exposure` and `hue` differ from camera to camera."""

    time_of_day: str = "day"  # day, dusk, night
    fog_per_m: float = 0.0
    exposure: float = 1.0
    hue: float = 0.0
    street_lit: bool = False

    @property
    def weather(self) -> str:
        return "fog" if self.fog_per_m > 0 else "clear"

    @property
    def noise(self) -> float:
        """Standard deviation of the sensor's noise, of a full scale of 1."""
        return {"day": 0.008, "dusk": 0.016, "night": 0.03}[self.time_of_day]


@dataclass(frozen=True)
class Part:
    """A cuboid of a body: middle and size in metres in the body's frame (x forward, y left, z up), and its paint."""

    middle: tuple[float, float, float]
    size: tuple[float, float, float]
    colour: Colour
    paint: str = "plain"
    motif: str = ""


@dataclass(frozen=True)
class Body:
    """One thing in the scene. `label` is its class for `head` (objects or signs); None is scenery, which nobody labels.

    x, y, yaw: the foot's middle in the vehicle's frame. velocity: over ground, along the vehicle's x and y, in m/s.
    """

    id: str
    head: str | None
    label: str | None
    parts: tuple[Part, ...]
    x: float
    y: float
    yaw: float
    velocity_mps: tuple[float, float] = (0.0, 0.0)
    glows: bool = False


@dataclass(frozen=True)
class Scene:
    """One instant. `seed` feeds what is random in the picture alone: the sensor's noise."""

    conditions: Conditions
    road: Road
    view: RoadView
    bodies: tuple[Body, ...] = field(default_factory=tuple)
    seed: int = 0
