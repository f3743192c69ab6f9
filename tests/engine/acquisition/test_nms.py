import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.acquisition.candidates import Candidate, Instant
from engine.acquisition.nms import suppress


def at(subject_id: str, t_ns: int, stream: str = "front", clip: str = "c1", drive: str = "d1") -> Candidate:
    return Candidate(subject_id, drive, clip, stream, t_ns, {}, ())


def test_the_best_of_neighbours_stays() -> None:
    frames = [at("a", 0), at("b", 50), at("c", 99), at("d", 150)]
    assert suppress(frames, [0.5, 0.9, 0.6, 0.1], window_ns=100) == [1, 3]


def test_other_streams_and_drives_are_no_neighbours() -> None:
    frames = [at("a", 0), at("b", 0, stream="rear"), at("c", 0, clip="c2", drive="d2")]
    assert sorted(suppress(frames, [1.0, 1.0, 1.0], window_ns=100)) == [0, 1, 2]


def test_the_end_of_a_clip_and_the_start_of_the_next_are_neighbours() -> None:
    assert suppress([at("a", 90), at("b", 110, clip="c2")], [0.5, 0.9], window_ns=100) == [1]


def test_a_tie_goes_to_the_lower_id() -> None:
    assert suppress([at("b", 0), at("a", 1)], [0.5, 0.5], window_ns=10) == [1]


def test_what_is_labelled_already_suppresses() -> None:
    assert suppress([at("a", 0), at("b", 500)], [0.9, 0.1], 100, [Instant("d1", "front", 60)]) == [1]


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        suppress([at("a", 0)], [float("nan")], 10)
    with pytest.raises(ValueError, match="1 candidates, 2 scores"):
        suppress([at("a", 0)], [1.0, 2.0], 10)
    with pytest.raises(ValueError, match="less than nothing"):
        suppress([], [], -1)


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 5), st.sampled_from(["f", "r"])), max_size=40), st.randoms()
)
def test_the_kept_are_apart_and_the_rest_are_near_something_better(rows, shuffle) -> None:  # type: ignore[no-untyped-def]
    frames = [at(f"s{i:03}", t, stream) for i, (t, _, stream) in enumerate(rows)]
    score = {f"s{i:03}": float(s) for i, (_, s, _) in enumerate(rows)}
    kept = [frames[i] for i in suppress(frames, [score[f.subject_id] for f in frames], 40)]
    for index, frame in enumerate(kept):
        for other in kept[:index]:
            assert other.stream != frame.stream or abs(other.capture_ns - frame.capture_ns) >= 40
    for frame in frames:
        if frame in kept:
            continue
        near = [k for k in kept if k.stream == frame.stream and abs(k.capture_ns - frame.capture_ns) < 40]
        order = (-score[frame.subject_id], frame.subject_id)
        assert any((-score[k.subject_id], k.subject_id) < order for k in near)
    shuffled = list(frames)
    shuffle.shuffle(shuffled)
    again = [shuffled[i] for i in suppress(shuffled, [score[f.subject_id] for f in shuffled], 40)]
    assert again == kept
