"""The simulated world: the same seed gives the same pictures, and every truth agrees with the pixels."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.domain.answers import Answer, check_answer, decode_runs
from services.simulation import shapes
from services.simulation.camera import Camera
from services.simulation.render import FIRST_BODY, ROAD, SKY, VERGE, Rendering, render
from services.simulation.road import Road
from services.simulation.scene import OBJECT_CLASSES, SIGN_CLASSES, Body, Conditions, Scene
from services.simulation.truth import answers, driving_ontology
from services.simulation.world import Setting, build_world

CAMERA = Camera()
STRAIGHT = Road("highway", 3, 3.6, 2.4, ())
BENT = Road("rural", 2, 3.4, 0.5, ((1 / 300, 300.0, 0.3),))
SETTINGS = (
    Setting(traffic=1.5),
    Setting("rural", people=1.0, decoys=1.0),
    Setting("urban", people=1.0, trucks=0.4, rare_sign=0.3),
    Setting("highway", time_of_day="night", trucks=0.4),
    Setting("rural", fog=True, people=1.0),
    Setting("urban", time_of_day="dusk", hard_brake=True),
)


def scene_of(*bodies: Body, road: Road = STRAIGHT, d: float = 0.0, conditions: Conditions | None = None) -> Scene:
    return Scene(conditions or Conditions(), road, road.seen_from(20.0, d), bodies, seed=7)


def car_at(x: float, y: float = 0.0, yaw: float = 0.0, name: str = "car-0") -> Body:
    parts = shapes.car(shapes.CAR_COLOURS[4])
    return Body(name, "objects", "car", parts, x, y, yaw, (3.0, 0.0), glows=True)


def array_of(answer: Answer) -> NDArray[np.float32]:
    assert answer.array is not None
    return np.load(io.BytesIO(answer.array)).astype(np.float32)


def mask_of(answer: Answer) -> NDArray[np.uint8]:
    height, width = answer.value["size"]
    return np.frombuffer(decode_runs(answer.value["runs"], (height, width)), np.uint8).reshape(height, width)


@pytest.fixture(scope="module")
def drawn() -> list[Rendering]:
    return [render(build_world(40 + i, s).at(t), CAMERA) for i, s in enumerate(SETTINGS) for t in (0.0, 1.1)]


def test_same_seed_gives_the_same_bytes() -> None:
    for setting in SETTINGS[:3]:
        first, again = (render(build_world(5, setting).at(0.7), CAMERA) for _ in range(2))
        assert first.rgb.tobytes() == again.rgb.tobytes()
        assert answers(first) == answers(again)
    other = render(build_world(6, SETTINGS[0]).at(0.7), CAMERA)
    assert other.rgb.tobytes() != render(build_world(5, SETTINGS[0]).at(0.7), CAMERA).rgb.tobytes()


def test_answers_are_canonical_for_every_setting(drawn: list[Rendering]) -> None:
    for rendering in drawn:
        found = answers(rendering)
        for head in driving_ontology().heads:
            check_answer(head, found[head.name])


def test_mask_is_road_surface_alone(drawn: list[Rendering]) -> None:
    for rendering in drawn:
        mask = mask_of(answers(rendering)["driveable"])
        assert np.array_equal(mask == 1, rendering.surface == ROAD)
        assert 0.03 < (mask == 1).mean() < 0.7
        assert not (mask[rendering.surface >= FIRST_BODY]).any()


def test_boxes_hold_exactly_the_pixels_of_their_object(drawn: list[Rendering]) -> None:
    height, width = CAMERA.height, CAMERA.width
    seen = 0
    for rendering in drawn:
        index_of = {body.id: index for index, body in enumerate(rendering.scene.bodies)}
        for head in ("objects", "signs"):
            for item in answers(rendering)[head].value["objects"]:
                mine = rendering.surface == FIRST_BODY + index_of[item["id"]]
                x0, y0, x1, y1 = (round(v * s) for v, s in zip(item["box"], (width, height) * 2, strict=True))
                assert mine[y0:y1, x0:x1].sum() == mine.sum() > 0
                assert all(edge.any() for edge in (mine[y0], mine[y1 - 1], mine[:, x0], mine[:, x1 - 1]))
                seen += 1
    assert seen > 20


def test_no_body_is_labelled_that_has_no_pixels_and_scenery_never(drawn: list[Rendering]) -> None:
    for rendering in drawn:
        labelled = {i["id"] for head in ("objects", "signs") for i in answers(rendering)[head].value["objects"]}
        for index, body in enumerate(rendering.scene.bodies):
            if body.label is None or not (rendering.surface == FIRST_BODY + index).any():
                assert body.id not in labelled


@pytest.mark.parametrize("distance", [9.0, 15.0, 24.0])
def test_depth_at_a_boxs_middle_is_the_distance_to_its_rear(distance: float) -> None:
    """The rear face is a plane, so the depth at which the ray through the box's middle meets it is known."""
    rendering = render(scene_of(car_at(distance)), CAMERA)
    found = answers(rendering)
    box = found["objects"].value["objects"][0]["box"]
    row, column = int((box[1] + box[3]) / 2 * CAMERA.height), int((box[0] + box[2]) / 2 * CAMERA.width)
    rear = distance - shapes.CAR_LENGTH_M / 2 - CAMERA.forward_m
    expected = rear / CAMERA.rays[row, column, 0]
    assert array_of(found["depth"])[row, column] == pytest.approx(expected, rel=2e-3)


def test_projected_corners_frame_the_box() -> None:
    """Project the body's corners with the calibration: the visible pixels end where they do, to a pixel."""
    rendering = render(scene_of(car_at(12.0)), CAMERA)
    body = shapes.car(shapes.CAR_COLOURS[4])[0]
    rear = 12.0 - body.size[0] / 2
    u, _, _ = CAMERA.project(np.array([[rear, body.size[1] / 2, 0.57], [rear, -body.size[1] / 2, 0.57]]))
    box = answers(rendering)["objects"].value["objects"][0]["box"]
    assert box[0] * CAMERA.width == pytest.approx(u[0], abs=1.0)
    assert box[2] * CAMERA.width == pytest.approx(u[1], abs=1.0)


def test_manifest_calibration_projects_as_the_camera_does() -> None:
    calibration = CAMERA.calibration()
    transform = np.linalg.inv(np.array(calibration["vehicle_from_sensor"]))
    points = np.array([[10.0, 2.0, 0.5], [30.0, -4.0, 2.0]])
    seen = points @ transform[:3, :3].T + transform[:3, 3]
    inside = calibration["intrinsics"]
    u = inside["fx"] * seen[:, 0] / seen[:, 2] + inside["cx"]
    v = inside["fy"] * seen[:, 1] / seen[:, 2] + inside["cy"]
    for expected, got in zip((u, v, seen[:, 2]), CAMERA.project(points), strict=True):
        assert got == pytest.approx(expected, rel=1e-4)


def test_mirrored_world_gives_the_mirrored_truth() -> None:
    """y -> -y flips the picture's columns; nothing in the geometry may prefer a side."""
    left = render(scene_of(car_at(14.0, 2.5, 0.3), road=BENT, d=0.4), CAMERA)
    waves = tuple((-a, w, p) for a, w, p in BENT.waves)
    right = render(scene_of(car_at(14.0, -2.5, -0.3), road=replace(BENT, waves=waves), d=-0.4), CAMERA)
    a, b = left.surface, right.surface[:, ::-1]
    assert (a == b).mean() > 0.998  # rounding may decide a border pixel differently
    both = (a == b) & (a != SKY)
    assert np.allclose(left.depth[both], right.depth[:, ::-1][both], rtol=1e-3)
    box, flipped = (answers(r)["objects"].value["objects"][0]["box"] for r in (left, right))
    assert box == pytest.approx([1 - flipped[2], flipped[1], 1 - flipped[0], flipped[3]], abs=1.5 / CAMERA.width)


def test_lane_points_lie_on_ground_and_on_paint() -> None:
    """By day a solid line's points are the brightest of their row's neighbourhood; all points are bottom to top."""
    rendering = render(scene_of(road=BENT, d=-1.7), CAMERA)
    lines = answers(rendering)["lanes"].value["lines"]
    assert len(lines) == len(BENT.marks)
    grey = rendering.rgb.astype(float).mean(-1)
    solid = {f"lane-{n}" for n, mark in enumerate(BENT.marks) if not mark.dashed}
    for line in lines:
        rows = [point[1] for point in line["points"]]
        assert rows == sorted(rows, reverse=True)
        for x, y in line["points"]:
            row, column = int(y * CAMERA.height), int(x * CAMERA.width)
            assert SKY < rendering.surface[row, column] <= VERGE
            if line["id"] in solid and y > 0.6 and 8 < column < CAMERA.width - 8:
                assert grey[row, column] > grey[row, column - 8] + 20 or grey[row, column] > grey[row, column + 8] + 20


def test_lane_points_are_never_on_an_object(drawn: list[Rendering]) -> None:
    for rendering in drawn:
        for line in answers(rendering)["lanes"].value["lines"]:
            for x, y in line["points"]:
                at = rendering.surface[int(y * CAMERA.height), min(int(x * CAMERA.width), CAMERA.width - 1)]
                assert SKY < at < FIRST_BODY


def test_hidden_and_tiny_objects_are_ignored_regions() -> None:
    hidden = render(scene_of(car_at(10.0), car_at(18.0, 0.9, name="car-1"), car_at(100.0, -20.0, name="car-2")), CAMERA)
    value = answers(hidden)["objects"].value
    assert [item["id"] for item in value["objects"]] == ["car-0"]
    assert len(value["ignore"]) == 2


def test_fog_and_darkness_leave_what_nobody_can_see_to_the_ignored_regions() -> None:
    far = car_at(45.0)
    clear = answers(render(scene_of(far), CAMERA))["objects"].value
    foggy = answers(render(scene_of(far, conditions=Conditions(fog_per_m=0.06)), CAMERA))["objects"].value
    assert [len(clear["objects"]), len(foggy["objects"]), len(foggy["ignore"])] == [1, 0, 1]
    walker = Body("p", "objects", "pedestrian", shapes.pedestrian((0.5,) * 3, (0.3,) * 3, 0.0), 28.0, -9.0, 0.0)
    day = answers(render(scene_of(walker), CAMERA))["objects"].value
    night = answers(render(scene_of(walker, conditions=Conditions("night")), CAMERA))["objects"].value
    assert [len(day["objects"]), len(night["objects"]), len(night["ignore"])] == [1, 0, 1]


def test_sky_has_no_depth_and_normals_are_units_towards_the_camera(drawn: list[Rendering]) -> None:
    for rendering in drawn:
        found = answers(rendering)
        depth, normals = array_of(found["depth"]), array_of(found["normals"])
        sky = rendering.surface == SKY
        assert np.isnan(depth[sky]).all()
        assert np.isfinite(depth[~sky]).all()
        assert np.isnan(normals[sky]).all()
        assert np.allclose(np.linalg.norm(normals[~sky], axis=-1), 1, atol=2e-3)
        towards = (normals * (CAMERA.rays @ CAMERA.rotation)).sum(-1)
        assert (towards[~sky] < 1e-2).all()


def test_velocity_is_what_the_object_does_between_two_instants() -> None:
    world = build_world(41, Setting("urban", people=1.0, traffic=1.5))
    first, later = world.at(0.5), world.at(0.6)
    there = {body.id: body for body in later.bodies}
    speed, yaw_rate = world.motion(0.55)
    checked = 0
    for body in first.bodies:
        if body.head != "objects" or body.id not in there:
            continue
        # Ground velocity = change of place in the moving, turning frame + what the frame itself does.
        moved = np.array([there[body.id].x - body.x, there[body.id].y - body.y]) / 0.1
        middle = (body.x + there[body.id].x) / 2, (body.y + there[body.id].y) / 2
        moved += [speed - yaw_rate * middle[1], yaw_rate * middle[0]]
        assert moved == pytest.approx(np.array(body.velocity_mps), abs=0.6)
        checked += 1
    assert checked >= 3


def test_painted_signs_are_no_signs() -> None:
    truck = Body("t", "objects", "truck", shapes.truck((0.8, 0.8, 0.8), "stop"), 16.0, 0.0, 0.0)
    plain = Body("t", "objects", "truck", shapes.truck((0.8, 0.8, 0.8)), 16.0, 0.0, 0.0)
    board = Body("b", None, None, shapes.billboard((0.3, 0.4, 0.6), "yield"), 25.0, -9.0, 0.0)
    painted = render(scene_of(truck, board), CAMERA)
    assert answers(painted)["signs"].value == {"objects": [], "ignore": []}
    assert (painted.rgb != render(scene_of(plain, board), CAMERA).rgb).any(), "the decoy can be seen"
    assert answers(painted)["objects"].value["objects"][0]["class"] == "truck"


def test_every_class_of_the_ontology_can_be_met() -> None:
    met: set[str] = set()
    for seed in range(12):
        world = build_world(seed, Setting("urban", people=1.0, trucks=0.4, rare_sign=0.25))
        met |= {mover.label for mover in world.movers if mover.label}
    assert met == {*OBJECT_CLASSES, *SIGN_CLASSES}


def test_signs_are_told_apart_by_their_looks() -> None:
    pictures = []
    for motif in SIGN_CLASSES:
        body = Body("s", "signs", motif, shapes.sign(motif, 1.3, 2.3), 14.0, -3.0, 0.0)
        rendering = render(scene_of(body), CAMERA)
        found = answers(rendering)["signs"].value["objects"]
        assert [item["class"] for item in found] == [motif]
        pictures.append(rendering.rgb.astype(int))
    for number, picture in enumerate(pictures):
        for other in pictures[number + 1 :]:
            assert (np.abs(picture - other).max(-1) > 60).sum() > 12
