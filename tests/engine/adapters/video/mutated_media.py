"""Video of several makes, and seeded damage to it: bits, ends, lengths, and boxes of one file in another."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

FOLDERS = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"dinf", b"moof", b"traf", b"mvex", b"udta"})
LIES = (0, 1, 2, 7, 8, 9, 15, 16, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
# name, codec, suffix, width, height, frames, B-frames, muxer options
MAKES: tuple[tuple[str, str, str, int, int, int, int, dict[str, str]], ...] = (
    ("plain", "libx264", "mp4", 96, 64, 12, 0, {}),
    ("reordered", "libx264", "mp4", 64, 48, 16, 2, {"movflags": "+faststart"}),
    ("fragments", "libx264", "mp4", 80, 64, 12, 0, {"movflags": "+frag_keyframe+empty_moov"}),
    ("hevc", "libx265", "mp4", 128, 96, 8, 0, {}),
    ("hevc-reordered", "libx265", "mov", 96, 96, 12, 2, {"movflags": "+faststart"}),
    ("matroska", "libx264", "mkv", 64, 64, 12, 2, {}),
    ("mpeg4", "mpeg4", "avi", 64, 48, 8, 0, {}),
)


def make_corpus(folder: Path) -> list[bytes]:
    """One small file of each make, each with several key frames."""
    corpus = []
    for name, codec, suffix, width, height, frames, b_frames, options in MAKES:
        path = folder / f"{name}.{suffix}"
        noise = np.random.default_rng(len(corpus))
        with av.open(path, "w", options=options) as container:
            stream = container.add_stream(codec, rate=10)
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            stream.codec_context.gop_size, stream.codec_context.max_b_frames = 4, b_frames
            if codec == "libx265":
                stream.options = {"x265-params": "log-level=none:pools=1:frame-threads=1", "preset": "ultrafast"}
            stream.codec_context.thread_count = 1
            for _ in range(frames):
                picture = noise.integers(0, 255, (height, width, 3), dtype=np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode(None))
        corpus.append(path.read_bytes())
    return corpus


@dataclass(frozen=True)
class Box:
    """A box of an MP4: where it starts and ends, and its type."""

    start: int
    end: int
    kind: bytes


def boxes(content: bytes | bytearray, start: int = 0, end: int | None = None) -> list[Box]:
    """Every box, those in boxes that hold others too; none of what is no MP4."""
    found: list[Box] = []
    end = len(content) if end is None else end
    while start + 8 <= end:
        size, kind = struct.unpack_from(">I4s", content, start)
        if size < 8 or start + size > end:
            break
        found.append(Box(start, start + size, bytes(kind)))
        if kind in FOLDERS:
            found += boxes(content, start + 8, start + size)
        start += size
    return found


def mutated(corpus: Sequence[bytes], number: int) -> bytes:
    """Mutation `number` of the corpus, the same whenever it is asked for."""
    chance = random.Random(number)
    content = bytearray(corpus[number % len(corpus)])
    for _ in range(chance.choice((1, 1, 2, 4))):
        chance.choice(_WAYS)(content, corpus, chance)
    return bytes(content)


def _flip_bits(content: bytearray, corpus: Sequence[bytes], chance: random.Random) -> None:
    for _ in range(chance.choice((1, 3, 30))):
        if content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def _flip_bits_of_the_index(content: bytearray, corpus: Sequence[bytes], chance: random.Random) -> None:
    index = [box for box in boxes(content) if box.kind not in (b"mdat", b"moov", b"free")]
    if not index:
        return _flip_bits(content, corpus, chance)
    for _ in range(chance.choice((1, 3))):
        box = chance.choice(index)
        content[chance.randrange(box.start, box.end)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _cut_off(content: bytearray, corpus: Sequence[bytes], chance: random.Random) -> None:
    del content[chance.randrange(len(content) + 1) :]


def _lie_about_a_length(content: bytearray, corpus: Sequence[bytes], chance: random.Random) -> None:
    found = boxes(content)
    if not found:
        return _flip_bits(content, corpus, chance)
    box = chance.choice(found)
    size = box.end - box.start
    lie = chance.choice((*LIES, size - 1, size + 1, size * 2, len(content), chance.randrange(1 << 32)))
    struct.pack_into(">I", content, box.start, lie)


def _lie_about_a_number(content: bytearray, corpus: Sequence[bytes], chance: random.Random) -> None:
    """A 32-bit number within a box of the index: a count of entries, a size, a time."""
    found = [box for box in boxes(content) if box.end - box.start >= 16 and box.kind != b"mdat"]
    if not found:
        return _flip_bits(content, corpus, chance)
    box = chance.choice(found)
    place = box.start + 8 + 4 * chance.randrange((box.end - box.start - 8) // 4)
    struct.pack_into(">I", content, place, chance.choice((*LIES, chance.randrange(1 << 32))))


def _splice(content: bytearray, corpus: Sequence[bytes], chance: random.Random) -> None:
    """A box of another file in the place of one of ours, of the same type where there is one."""
    ours, other = boxes(content), chance.choice(corpus)
    if not ours:
        return _flip_bits(content, corpus, chance)
    box = chance.choice(ours)
    theirs = boxes(other)
    alike = [each for each in theirs if each.kind == box.kind] or theirs
    if alike:
        donor = chance.choice(alike)
        content[box.start : box.end] = other[donor.start : donor.end]


def _move(content: bytearray, corpus: Sequence[bytes], chance: random.Random) -> None:
    """Remove, double or blank a stretch."""
    if len(content) < 2:
        return
    start = chance.randrange(len(content) - 1)
    end = min(len(content), start + chance.choice((1, 4, 64, 1024)))
    content[start:end] = chance.choice((b"", bytes(content[start:end]) * 2, bytes(end - start)))


_WAYS: tuple[Callable[[bytearray, Sequence[bytes], random.Random], None], ...] = (
    _flip_bits,
    _flip_bits_of_the_index,
    _cut_off,
    _lie_about_a_length,
    _lie_about_a_number,
    _splice,
    _move,
)
