"""The bodies' shapes: what cuboids a car, a person or a sign is made of. Sizes in metres."""

from __future__ import annotations

from services.simulation.scene import Colour, Part

CAR_COLOURS: tuple[Colour, ...] = (
    (0.75, 0.76, 0.78), (0.12, 0.13, 0.15), (0.62, 0.10, 0.10), (0.13, 0.25, 0.52),
    (0.90, 0.90, 0.90), (0.35, 0.38, 0.40), (0.55, 0.45, 0.20), (0.10, 0.35, 0.25),
)  # fmt: skip
TRAILER_COLOURS: tuple[Colour, ...] = ((0.85, 0.85, 0.86), (0.25, 0.40, 0.62), (0.72, 0.55, 0.20), (0.55, 0.18, 0.16))
CLOTHES: tuple[Colour, ...] = (
    (0.70, 0.20, 0.20),
    (0.20, 0.30, 0.60),
    (0.80, 0.75, 0.30),
    (0.25, 0.25, 0.27),
    (0.85, 0.85, 0.85),
)
SKIN: Colour = (0.80, 0.62, 0.50)
DARK: Colour = (0.07, 0.07, 0.08)
STEEL: Colour = (0.48, 0.49, 0.50)

CAR_LENGTH_M = 4.5
TRUCK_LENGTH_M = 11.0


def car(colour: Colour) -> tuple[Part, ...]:
    return (
        Part((0.0, 0.0, 0.57), (CAR_LENGTH_M, 1.82, 0.74), colour, "car_body"),
        Part((-0.25, 0.0, 1.19), (2.5, 1.60, 0.52), colour, "glass"),
        Part((0.0, 0.0, 0.20), (4.1, 1.70, 0.40), DARK, "plain"),
    )


def truck(colour: Colour, motif: str = "") -> tuple[Part, ...]:
    """A cab and a box; `motif` names a sign that is painted on the box, which is no sign."""
    return (
        Part((4.3, 0.0, 1.75), (2.2, 2.40, 2.5), (colour[0] * 0.7, colour[1] * 0.7, colour[2] * 0.7), "glass"),
        Part((-1.2, 0.0, 2.30), (8.6, 2.50, 2.7), colour, "trailer", motif),
        Part((0.0, 0.0, 0.52), (TRUCK_LENGTH_M, 2.30, 1.0), DARK, "chassis"),
    )


def pedestrian(clothes: Colour, trousers: Colour, stride: float) -> tuple[Part, ...]:
    """`stride` in [-1, 1] swings the legs."""
    return (
        Part((0.22 * stride, 0.10, 0.42), (0.20, 0.18, 0.84), trousers),
        Part((-0.22 * stride, -0.10, 0.42), (0.20, 0.18, 0.84), trousers),
        Part((0.0, 0.0, 1.13), (0.30, 0.52, 0.62), clothes),
        Part((0.0, 0.0, 1.58), (0.24, 0.24, 0.28), SKIN),
    )


def bicyclist(clothes: Colour) -> tuple[Part, ...]:
    return (
        Part((0.58, 0.0, 0.34), (0.66, 0.09, 0.68), DARK, "wheel"),
        Part((-0.52, 0.0, 0.34), (0.66, 0.09, 0.68), DARK, "wheel"),
        Part((0.0, 0.0, 0.62), (0.95, 0.08, 0.14), (0.75, 0.15, 0.12)),
        Part((-0.15, 0.0, 0.80), (0.30, 0.34, 0.50), (0.16, 0.17, 0.22)),
        Part((0.0, 0.0, 1.25), (0.34, 0.48, 0.55), clothes),
        Part((0.12, 0.0, 1.66), (0.26, 0.24, 0.27), (0.85, 0.85, 0.25)),
    )


def sign(motif: str, size: float, height: float) -> tuple[Part, ...]:
    """A plate that faces against x, its pole behind it (the pole is a part of no label: see `sign_pole`)."""
    return (Part((0.0, 0.0, height), (0.05, size, size), (1.0, 1.0, 1.0), "sign", motif),)


def sign_pole(height: float) -> tuple[Part, ...]:
    return (Part((0.12, 0.0, height / 2), (0.12, 0.12, height), STEEL),)


def billboard(colour: Colour, motif: str) -> tuple[Part, ...]:
    return (
        Part((0.0, 0.0, 4.2), (0.3, 6.0, 3.0), colour, "billboard", motif),
        Part((0.2, -1.8, 1.4), (0.3, 0.3, 2.8), STEEL),
        Part((0.2, 1.8, 1.4), (0.3, 0.3, 2.8), STEEL),
    )


def tree(height: float, colour: Colour) -> tuple[Part, ...]:
    crown = height * 0.68
    return (
        Part((0.0, 0.0, height * 0.2), (0.35, 0.35, height * 0.4), (0.28, 0.20, 0.13)),
        Part((0.0, 0.0, height * 0.40 + crown * 0.3), (crown * 0.7, crown * 0.7, crown * 0.6), colour, "foliage"),
        Part((0.0, 0.0, height * 0.85), (crown * 0.4, crown * 0.4, crown * 0.45), colour, "foliage"),
    )


def building(depth: float, width: float, height: float, colour: Colour) -> tuple[Part, ...]:
    return (Part((0.0, 0.0, height / 2), (depth, width, height), colour, "building"),)


def barrier(length: float) -> tuple[Part, ...]:
    return (Part((0.0, 0.0, 0.42), (length, 0.28, 0.84), (0.62, 0.62, 0.60)),)
