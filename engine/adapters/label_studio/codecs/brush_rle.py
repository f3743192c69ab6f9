"""The run-length code that the label tool keeps brush masks in: thi.ng/rle-pack over the picture's RGBA bytes.

A bit stream, most significant bit first: 32 bits count of values, 5 bits word size - 1, four times 4 bits run-size
width - 1; then blocks of 1 bit (1: one value repeated, 0: literal values), 2 bits choice of run-size width, the run
size - 1, and one value or that many. The tool writes a pixel's opacity into all four of its bytes.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

_WIDTHS = (3, 4, 8, 16)
_VALUE_BITS = 8
_HEADER_BITS = 32 + 5 + 4 * 4
_LONGEST = 1 << _WIDTHS[-1]
_OPAQUE_FROM = 128  # the tool smooths a region's edge; half and more of a pixel is the pixel


class BrushCodeError(ValueError):
    """Not a brush mask of the size that it should have; the message says in what way."""


def encode_brush(mask: NDArray[np.bool_]) -> list[int]:
    """A (H, W) mask in the tool's code, as the list of byte values that goes into a result's ``rle``."""
    flat = np.ascontiguousarray(mask, dtype=bool).reshape(-1)
    bits = [f"{flat.size * 4:032b}", f"{_VALUE_BITS - 1:05b}", *(f"{width - 1:04b}" for width in _WIDTHS)]
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    bounds = [0, *changes.tolist(), flat.size]
    for start, end in pairwise(bounds):
        value = "11111111" if flat[start] else "00000000"
        left = (end - start) * 4
        while left:
            run = min(left, _LONGEST)
            choice = next(number for number, width in enumerate(_WIDTHS) if run <= 1 << width)
            bits.append(f"1{choice:02b}{run - 1:0{_WIDTHS[choice]}b}{value}")
            left -= run
    stream = "".join(bits)
    stream += "0" * (-len(stream) % 8)
    return list(int(stream, 2).to_bytes(len(stream) // 8, "big"))


def decode_brush(rle: list[int], width: int, height: int) -> NDArray[np.bool_]:
    """The (H, W) mask of a result's ``rle``. Makes no more than the size needs. Raises BrushCodeError."""
    try:
        data = bytes(rle)
    except (TypeError, ValueError) as wrong:
        raise BrushCodeError("the mask's code is not a list of bytes") from wrong
    if len(data) * 8 < _HEADER_BITS:
        raise BrushCodeError("the mask's code is shorter than its header")
    total = int.from_bytes(data[:4], "big")
    if total != width * height * 4:
        raise BrushCodeError(f"the mask has {total // 4} pixels, the picture {width}x{height} has {width * height}")
    header = int.from_bytes(data[:7], "big") >> (7 * 8 - _HEADER_BITS)
    if (header >> 16 & 31) + 1 != _VALUE_BITS:
        raise BrushCodeError("the mask's values are not bytes")
    widths = [(header >> shift & 15) + 1 for shift in (12, 8, 4, 0)]
    values = _expand(data, total, widths)
    opacity: NDArray[np.uint8] = np.frombuffer(values, dtype=np.uint8).reshape(height, width, 4)[:, :, 3]
    return opacity >= _OPAQUE_FROM


def _expand(data: bytes, total: int, widths: list[int]) -> bytes:
    bits: NDArray[np.uint8] | None = None
    end = len(data) * 8
    padded = data + bytes(8)  # so that a peek of 8 bytes never runs over
    at, made = _HEADER_BITS, 0
    parts: list[bytes] = []
    while made < total:
        if at + 3 > end:
            raise BrushCodeError("the mask's code ends too early")
        window = int.from_bytes(padded[at >> 3 : (at >> 3) + 8], "big") << (at & 7) & 0xFFFFFFFFFFFFFFFF
        repeated = window >> 63
        size_bits = widths[window >> 61 & 3]
        run = (window >> (61 - size_bits) & ((1 << size_bits) - 1)) + 1
        at += 3 + size_bits
        made += run
        if made > total:
            raise BrushCodeError("the mask's code holds more values than it says")
        if repeated:
            parts.append(bytes((window >> (61 - size_bits - _VALUE_BITS) & 0xFF,)) * run)
            at += _VALUE_BITS
        else:
            if bits is None:
                bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8))
            parts.append(np.packbits(bits[at : at + run * _VALUE_BITS]).tobytes())
            at += run * _VALUE_BITS
        if at > end:
            raise BrushCodeError("the mask's code ends too early")
    return b"".join(parts)
