"""A clip's world: one stretch of road, who is on it, and where everything is at any time. Made from a seed alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from services.simulation import shapes
from services.simulation.road import Road, RoadView
from services.simulation.scene import RARE_SIGN, SIGN_CLASSES, Body, Conditions, Part, Scene

AHEAD_M = 110.0


@dataclass(frozen=True)
class Setting:
    """What is decided for a whole drive; the world of each of its clips follows it.

    `trucks` and `people` are chances (a lane's vehicle is a truck; somebody is about); `rare_sign` is the rare class's
    share of signs; `traffic` scales how many vehicles there are; `decoys` is the chance of a sign where none should be.
    """

    road_kind: str = "highway"
    time_of_day: str = "day"
    fog: bool = False
    traffic: float = 1.0
    trucks: float = 0.0
    people: float = 0.0
    rare_sign: float = 0.0
    decoys: float = 0.0
    hard_brake: bool = False


@dataclass(frozen=True)
class Mover:
    """Something that may move: at (s, d) at the clip's start, with a constant speed and drift, later accelerating.

    It brakes to a stop and no further.
    """

    id: str
    kind: str
    s: float
    d: float
    speed_mps: float
    parts: tuple[Part, ...]
    head: str | None = "objects"
    label: str | None = None
    accel_mps2: float = 0.0
    accel_from_s: float = 0.0
    drift_mps: float = 0.0
    turned: float = 0.0  # rad, against the road's heading
    glows: bool = False
    lane: int | None = field(default=None, compare=False)

    def at(self, t: float) -> tuple[float, float, float]:
        """s, d and the speed along the road at t seconds."""
        since = max(0.0, t - self.accel_from_s)
        if self.accel_mps2 < 0:
            since = min(since, self.speed_mps / -self.accel_mps2)
        travelled = self.speed_mps * t if since == 0 else self._braked(t, since)
        return self.s + travelled, self.d + self.drift_mps * t, self.speed_mps + self.accel_mps2 * since

    def _braked(self, t: float, since: float) -> float:
        before = self.speed_mps * min(t, self.accel_from_s)
        return before + self.speed_mps * since + self.accel_mps2 * since * since / 2


@dataclass(frozen=True)
class World:
    """A clip's world. `ego` is the vehicle that carries the camera."""

    seed: int
    setting: Setting
    conditions: Conditions
    road: Road
    ego: Mover
    movers: tuple[Mover, ...]

    def at(self, t: float) -> Scene:
        """The scene at t seconds into the clip."""
        s, d, _ = self.ego.at(t)
        view = self.road.seen_from(s, d)
        bodies = []
        for mover in self.movers:
            at, aside, along = mover.at(t)
            if at - s < -18 or at - s > (AHEAD_M if mover.head else 170.0):
                continue
            bodies.append(_body(view, mover, at, aside, along, t))
        noise = np.random.SeedSequence([self.seed, round(t * 1e6)]).generate_state(1)[0]
        seed = (self.seed & 0xFFFFFF) << 8 | int(noise) & 0xFF
        return Scene(self.conditions, self.road, view, tuple(bodies), seed)

    def motion(self, t: float) -> tuple[float, float]:
        """The ego vehicle's speed in m/s and yaw rate in rad/s (positive to the left)."""
        s, _, speed = self.ego.at(t)
        return speed, speed * self.road.curvature(s)


def build_world(seed: int, setting: Setting) -> World:
    """The same seed and setting make the same world."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x57]))
    road = _road(rng, setting.road_kind)
    fog = rng.uniform(0.028, 0.06) if setting.fog else 0.0
    conditions = Conditions(
        time_of_day=setting.time_of_day,
        fog_per_m=fog,
        exposure=float(rng.uniform(0.9, 1.1)),
        hue=float(rng.uniform(-1, 1)),
        street_lit=setting.road_kind == "urban",
    )
    own_lanes = road.lanes - road.oncoming_lanes
    lane = int(rng.integers(own_lanes))
    cruise = {"highway": 27.0, "rural": 18.0, "urban": 9.0}[setting.road_kind] * rng.uniform(0.85, 1.1)
    if setting.fog:
        cruise *= 0.7
    ego = Mover(
        "ego", "car", 20.0, road.lane_centre(lane) + float(rng.normal(0, 0.15)), cruise, (), head=None, lane=lane
    )
    movers: list[Mover] = []
    for number in range(road.lanes):
        oncoming = number >= own_lanes
        movers += _lane_traffic(rng, road, setting, number, oncoming, ego)
    if setting.hard_brake:
        ego, movers = _brake(rng, road, ego, movers)
    movers += _people(rng, road, setting, ego)
    movers += _signs(rng, road, setting)
    movers += _scenery(rng, road, setting)
    return World(seed, setting, conditions, road, ego, tuple(movers))


def _body(view: RoadView, mover: Mover, s: float, d: float, along: float, t: float) -> Body:
    x, y, heading = view.place(s, d)
    yaw = heading + mover.turned
    parts = mover.parts
    if mover.kind == "pedestrian":
        parts = shapes.pedestrian(parts[2].colour, parts[0].colour, float(np.sin(7 * t + mover.s)))
    cos, sin = np.cos(heading), np.sin(heading)
    velocity = (float(cos * along - sin * mover.drift_mps), float(sin * along + cos * mover.drift_mps))
    return Body(mover.id, mover.head, mover.label, parts, x, y, yaw, velocity, mover.glows)


def _road(rng: np.random.Generator, kind: str) -> Road:
    lanes = {"highway": int(rng.integers(2, 4)), "rural": 2, "urban": int(rng.choice([2, 4]))}[kind]
    bend = {"highway": 1 / 900, "rural": 1 / 330, "urban": 1 / 450}[kind]
    waves = tuple(
        (float(rng.uniform(-bend, bend)), float(rng.uniform(220, 420)), float(rng.uniform(0, 2 * np.pi)))
        for _ in range(2)
    )
    width = {"highway": 3.6, "rural": 3.4, "urban": 3.2}[kind]
    shoulder = {"highway": 2.4, "rural": 0.5, "urban": 0.5}[kind]
    return Road(kind, lanes, width, shoulder, waves)


def _lane_traffic(
    rng: np.random.Generator, road: Road, setting: Setting, lane: int, oncoming: bool, ego: Mover
) -> list[Mover]:
    """A lane's vehicles, spaced so that they don't meet within a clip: one speed a lane."""
    spacing = {"highway": 55.0, "rural": 70.0, "urban": 34.0}[setting.road_kind] / max(setting.traffic, 0.05)
    speed = ego.speed_mps * float(rng.uniform(0.9, 1.08))
    if lane == ego.lane:
        speed = ego.speed_mps * float(rng.uniform(0.97, 1.05))
    vehicles: list[Mover] = []
    s = ego.s - 15 + float(rng.exponential(spacing))
    while s < ego.s + (260 if oncoming else AHEAD_M + 10):
        is_truck = rng.random() < setting.trucks
        reach = shapes.TRUCK_LENGTH_M if is_truck else shapes.CAR_LENGTH_M
        if lane == ego.lane:
            s = max(s, ego.s + 12 + ego.speed_mps * 0.25 + reach / 2)
        motif = ""
        if is_truck and rng.random() < setting.decoys:
            motif = str(rng.choice(["stop", "speed_limit", "other"]))
        parts = (
            shapes.truck(shapes.TRAILER_COLOURS[rng.integers(len(shapes.TRAILER_COLOURS))], motif)
            if is_truck
            else shapes.car(shapes.CAR_COLOURS[rng.integers(len(shapes.CAR_COLOURS))])
        )
        kind = "truck" if is_truck else "car"
        vehicles.append(
            Mover(
                f"{kind}-{lane}-{len(vehicles)}", kind, s, road.lane_centre(lane) + float(rng.normal(0, 0.2)),
                -speed if oncoming else speed, parts, label=kind, turned=np.pi if oncoming else 0.0, glows=True,
                lane=lane,
            )
        )  # fmt: skip
        s += reach + 9 + float(rng.exponential(spacing))
    return vehicles


def _brake(rng: np.random.Generator, road: Road, ego: Mover, movers: list[Mover]) -> tuple[Mover, list[Mover]]:
    """The vehicle ahead brakes hard and so does the ego vehicle; where there was none ahead, there is one now."""
    ahead = [m for m in movers if m.lane == ego.lane]
    hard = -float(rng.uniform(5.5, 7.5))
    if not ahead:
        parts = shapes.car(shapes.CAR_COLOURS[rng.integers(len(shapes.CAR_COLOURS))])
        lead = Mover(
            "car-lead", "car", ego.s + 16 + ego.speed_mps * 0.5, road.lane_centre(ego.lane or 0), ego.speed_mps, parts,
            label="car", glows=True, lane=ego.lane,
        )  # fmt: skip
        movers = [*movers, lead]
    since = float(rng.uniform(0.3, 0.9))
    braking = [replace(m, accel_mps2=hard, accel_from_s=since) if m.lane == ego.lane else m for m in movers]
    return replace(ego, accel_mps2=hard, accel_from_s=since), braking


def _people(rng: np.random.Generator, road: Road, setting: Setting, ego: Mover) -> list[Mover]:
    people: list[Mover] = []
    if rng.random() >= setting.people:
        return people
    edge = -road.half_width_m - road.shoulder_m
    for number in range(int(rng.integers(1, 5 if setting.road_kind == "urban" else 3))):
        s = ego.s + float(rng.uniform(9, 45)) + ego.speed_mps * 0.4
        clothes = shapes.CLOTHES[rng.integers(len(shapes.CLOTHES))]
        if rng.random() < 0.4:
            d = -road.half_width_m + float(rng.uniform(-0.1, 0.7))
            people.append(
                Mover(
                    f"bicyclist-{number}",
                    "bicyclist",
                    s,
                    d,
                    float(rng.uniform(3.5, 6.5)),
                    shapes.bicyclist(clothes),
                    label="bicyclist",
                )
            )
            continue
        parts = shapes.pedestrian(clothes, shapes.CLOTHES[rng.integers(len(shapes.CLOTHES))], 0.0)
        left = rng.random() < 0.3
        d, along, drift = edge - float(rng.uniform(0.4, 2.0)), float(rng.uniform(-1.5, 1.5)), 0.0
        if left:
            d = -d
        if setting.road_kind != "highway" and rng.random() < 0.3:
            d, along, drift = float(rng.uniform(edge, 0)), 0.0, float(rng.choice([-1.4, 1.4]))
        turned = float(np.sign(drift) * np.pi / 2) if drift else (0.0 if along >= 0 else np.pi)
        people.append(
            Mover(
                f"pedestrian-{number}",
                "pedestrian",
                s,
                d,
                along,
                parts,
                label="pedestrian",
                drift_mps=drift,
                turned=turned,
            )
        )
    return people


def _signs(rng: np.random.Generator, road: Road, setting: Setting) -> list[Mover]:
    """Signs on the right verge, with their poles; and, rarely, a billboard that shows a sign."""
    things: list[Mover] = []
    common = {"highway": (0.0, 0.0, 0.6, 0.4), "rural": (0.15, 0.2, 0.4, 0.25), "urban": (0.35, 0.25, 0.2, 0.2)}[
        setting.road_kind
    ]
    spacing = {"highway": 70.0, "rural": 58.0, "urban": 36.0}[setting.road_kind]
    edge = -road.half_width_m - road.shoulder_m
    s = 20.0 + float(rng.uniform(0, spacing))
    names = [name for name in SIGN_CLASSES if name != RARE_SIGN]
    while s < 230:
        motif = RARE_SIGN if rng.random() < setting.rare_sign else str(rng.choice(names, p=common))
        size = float(rng.uniform(1.5, 1.9)) if setting.road_kind == "highway" else float(rng.uniform(1.1, 1.35))
        height = 2.5 + float(rng.uniform(0, 0.3))
        d = edge - size / 2 - float(rng.uniform(0.2, 0.8))
        number = len(things)
        things.append(
            Mover(f"sign-{number}", "sign", s, d, 0.0, shapes.sign(motif, size, height), head="signs", label=motif)
        )
        things.append(Mover(f"pole-{number}", "pole", s, d, 0.0, shapes.sign_pole(height), head=None))
        s += spacing * float(rng.uniform(0.6, 1.6))
    if rng.random() < setting.decoys:
        tint = shapes.TRAILER_COLOURS[rng.integers(len(shapes.TRAILER_COLOURS))]
        board = shapes.billboard(tint, str(rng.choice(["stop", "yield", "speed_limit"])))
        things.append(
            Mover("billboard", "billboard", float(rng.uniform(45, 90)), edge - 7.0, 0.0, board, head=None, turned=-0.2)
        )
    return things


def _scenery(rng: np.random.Generator, road: Road, setting: Setting) -> list[Mover]:
    things: list[Mover] = []
    edge = road.half_width_m + road.shoulder_m
    if setting.road_kind == "highway":
        for number in range(24):
            s = 6.0 + 8.0 * number
            turned = road.heading(s + 0.5) - road.heading(s)
            things.append(
                Mover(f"barrier-{number}", "barrier", s, edge + 0.5, 0.0, shapes.barrier(8.1), head=None, turned=turned)
            )
    gap = {"highway": 26.0, "rural": 17.0, "urban": 19.0}[setting.road_kind]
    for side in (-1, 1):
        s = 15.0 + float(rng.uniform(0, gap))
        while s < 220:
            if setting.road_kind == "urban" and rng.random() < 0.75:
                depth, width, height = (float(rng.uniform(*bounds)) for bounds in ((9, 17), (8, 12), (5, 15)))
                shade = float(rng.uniform(0.35, 0.65))
                tint = (shade * float(rng.uniform(1.1, 1.35)), shade, shade * float(rng.uniform(0.8, 1.0)))
                d, parts = side * (edge + 4.0 + width / 2), shapes.building(depth, width, height, tint)
            else:
                green = float(rng.uniform(0.28, 0.44))
                d = side * (edge + float(rng.uniform(3.5, 16)))
                parts = shapes.tree(float(rng.uniform(4, 9)), (green * 0.6, green, green * 0.45))
            things.append(Mover(f"scenery-{side}-{len(things)}", "scenery", s, d, 0.0, parts, head=None))
            s += gap * float(rng.uniform(0.7, 1.9))
    return things
