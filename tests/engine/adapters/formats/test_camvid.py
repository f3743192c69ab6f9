from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from engine.adapters.formats import camvid as formats
from engine.adapters.formats.camvid import CamVidError, boxes_answer, camvid_ontology, driveable_answer, read_drives
from engine.adapters.video.encode import encode_clip
from engine.adapters.video.probe import ChildMediaProbe
from engine.domain.answers import check_answer, decode_runs

SKY = 0


def street(height: int = 36, width: int = 48) -> npt.NDArray[np.uint8]:
    mask = np.full((height, width), SKY, np.uint8)
    mask[20:, :] = formats.ROAD
    mask[34:, :10] = formats.UNLABELLED
    mask[10:22, 4:16] = 8  # a car of 144 pixels
    mask[10:15, 30:34] = 9  # a pedestrian of 20 pixels, too few
    mask[2:8, 40:46] = formats.SIGN
    return mask


def write_sequence(folder: Path, name: str, numbers: list[int]) -> None:
    for part in ("images", "labels"):
        (folder / name / part).mkdir(parents=True)
    for number in numbers:
        stem = f"{name.removesuffix('-15hz')}_{number:05d}"
        Image.new("RGB", (48, 36), (number % 256, 90, 90)).save(folder / name / "images" / f"{stem}.jpg")
        Image.fromarray(street()).save(folder / name / "labels" / f"{stem}.png")


def test_the_road_is_driveable_and_the_unlabelled_is_ignored() -> None:
    mask = street()
    answer = driveable_answer(mask)
    check_answer(camvid_ontology().head("driveable"), answer)
    cells = np.frombuffer(decode_runs(answer.value["runs"], (36, 48)), np.uint8).reshape(36, 48)
    assert np.array_equal(cells == 1, mask == formats.ROAD)
    assert np.array_equal(cells == 255, mask == formats.UNLABELLED)


def test_components_become_boxes_and_crumbs_are_ignored() -> None:
    answer = boxes_answer(street(), formats.OBJECT_CLASSES, formats.LEAST_PIXELS)
    check_answer(camvid_ontology().head("objects"), answer)
    assert answer.value["objects"] == [{"id": "car-0", "class": "car", "box": [4 / 48, 10 / 36, 16 / 48, 22 / 36]}]
    assert answer.value["ignore"] == [[30 / 48, 10 / 36, 34 / 48, 15 / 36]]


def test_an_empty_street_has_an_empty_answer() -> None:
    answer = boxes_answer(np.zeros((36, 48), np.uint8), formats.OBJECT_CLASSES, formats.LEAST_PIXELS)
    assert answer.value == {"objects": [], "ignore": []}


def test_clips_are_consecutive_short_and_of_one_drive(tmp_path: Path) -> None:
    write_sequence(tmp_path, "0016E5", [30 * number for number in range(1, 13)] + [3000, 3030])
    write_sequence(tmp_path, "0016E5-15hz", [61, 63, 65])
    write_sequence(tmp_path, "0001TP", [90])
    tp, e5 = read_drives(tmp_path)
    assert (tp.external_id, e5.external_id) == ("0001TP", "0016E5")
    found = [(clip.external_id, len(clip.frames), clip.drive) for clip in e5.clips]
    assert found == [
        ("0016E5-00030", 10, "0016E5"),
        ("0016E5-15hz-00061", 3, "0016E5"),
        ("0016E5-00330", 2, "0016E5"),
        ("0016E5-03000", 2, "0016E5"),
    ]
    assert e5.clips[2].start_ns - e5.clips[0].start_ns == 10 * 10**9
    assert [pts for pts, _ in e5.clips[1].labels()] == [0, 2, 4]
    assert [picture.pts for picture in e5.clips[1].pictures()] == [0, 2, 4]


def test_a_clip_becomes_a_video_with_the_frames_times(tmp_path: Path) -> None:
    write_sequence(tmp_path, "0001TP", [60, 90, 120])
    [drive] = read_drives(tmp_path)
    encode_clip(tmp_path / "clip.mp4", drive.clips[0].pictures(), formats.TIME_BASE)
    found = ChildMediaProbe().probe(tmp_path / "clip.mp4")
    assert (found.pts, found.time_base_num, found.time_base_den) == ((0, 30, 60), 1, 30)


def test_a_folder_that_is_not_camvid_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CamVidError, match="SEQUENCE/images"):
        read_drives(tmp_path)
    with pytest.raises(CamVidError, match="SEQUENCE/images"):
        read_drives(tmp_path / "absent")
    write_sequence(tmp_path, "0001TP", [30])
    (tmp_path / "0001TP" / "labels" / "0001TP_00030.png").unlink()
    with pytest.raises(CamVidError, match="has no mask"):
        read_drives(tmp_path)


def test_a_mask_with_unknown_indices_is_refused(tmp_path: Path) -> None:
    write_sequence(tmp_path, "0001TP", [30])
    Image.fromarray(np.full((36, 48), 99, np.uint8)).save(tmp_path / "0001TP" / "labels" / "0001TP_00030.png")
    [drive] = read_drives(tmp_path)
    with pytest.raises(CamVidError, match="index 99"):
        list(drive.clips[0].labels())


@pytest.mark.real_data
def test_the_real_folder_gives_whole_labels(camvid: Path) -> None:
    drives = {drive.external_id: drive for drive in read_drives(camvid)}
    counts = {name: sum(len(clip.frames) for clip in drive.clips) for name, drive in drives.items()}
    assert counts == {"0001TP": 124, "0006R0": 101, "0016E5": 305}
    assert all(0 < len(clip.frames) <= 10 for drive in drives.values() for clip in drive.clips)
    ontology, cars = camvid_ontology(), 0
    for drive in drives.values():
        for clip in drive.clips[::8]:
            for _, labels in clip.labels():
                for head in ontology.heads:
                    check_answer(head, labels[head.name])
                assert (
                    0.02
                    < np.mean(np.frombuffer(decode_runs(labels["driveable"].value["runs"], (360, 480)), np.uint8) == 1)
                    < 0.7
                )
                cars += sum(item["class"] == "car" for item in labels["objects"].value["objects"])
    assert cars > 100
