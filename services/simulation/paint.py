"""What the surfaces look like: faces of cuboids, signs' motifs, ground, sky, light and air.

Colours are (N, 3) or (..., 3) float32 in [0, 1]. A face's painter sees where it was hit in the part's own frame,
each coordinate in [-1, 1] over the part's size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.simulation.camera import Camera
from services.simulation.road import Road
from services.simulation.scene import Conditions, Part

Array = NDArray[np.floating[Any]]

SUN = np.array([-0.35, 0.50, 0.79], dtype=np.float32)
AMBIENT = {"day": (0.58, 0.60, 0.64), "dusk": (0.42, 0.36, 0.38), "night": (0.055, 0.06, 0.085)}
SUNLIGHT = {"day": (0.50, 0.49, 0.45), "dusk": (0.20, 0.13, 0.08), "night": (0.0, 0.0, 0.0)}
FOG_COLOUR = {"day": (0.74, 0.76, 0.78), "dusk": (0.52, 0.46, 0.46), "night": (0.09, 0.10, 0.12)}
ZENITH = {"day": (0.30, 0.50, 0.82), "dusk": (0.25, 0.26, 0.45), "night": (0.015, 0.02, 0.05)}
HORIZON = {"day": (0.72, 0.81, 0.90), "dusk": (0.90, 0.56, 0.36), "night": (0.05, 0.055, 0.09)}
ASPHALT = {"highway": (0.37, 0.37, 0.385), "rural": (0.34, 0.335, 0.33), "urban": (0.31, 0.31, 0.325)}
VERGE = {"highway": (0.36, 0.45, 0.21), "rural": (0.42, 0.47, 0.22), "urban": (0.55, 0.54, 0.52)}


def colour(values: tuple[float, float, float]) -> Array:
    return np.array(values, dtype=np.float32)


def grain(a: NDArray[Any], b: NDArray[Any]) -> Array:
    """Fixed noise in [-1, 1) over integer cells: the same place looks the same in every frame."""
    mixed = a.astype(np.int32).astype(np.uint32) * np.uint32(0x9E3779B1) ^ b.astype(np.int32).astype(
        np.uint32
    ) * np.uint32(0x85EBCA77)
    mixed ^= mixed >> np.uint32(15)
    mixed *= np.uint32(0x2C1B3C6D)
    mixed ^= mixed >> np.uint32(13)
    return (mixed >> np.uint32(8)).astype(np.float32) * np.float32(2 / (1 << 24)) - np.float32(1)


def headlights(x: NDArray[Any], y: NDArray[Any], z: NDArray[Any]) -> Array:
    """The ego vehicle's low beam at points of its frame, 1 close ahead and falling off."""
    aside = y / (2.2 + 0.22 * np.abs(x))
    beam = np.exp(-aside * aside) / (1 + (x / 21.0) ** 2) * np.clip(1.35 - z / 3.2, 0.12, 1.0)
    return np.asarray(np.where(x > 0, beam, 0), dtype=np.float32)


def lit(albedo: Array, normal_light: Array, beam: Array, retro: Array | float, conditions: Conditions) -> Array:
    """Albedo (N, 3) under ambient light, the sun at `normal_light` (N,) = max(0, n . sun), and the low beam (N,)."""
    ambient = colour(AMBIENT[conditions.time_of_day])
    if conditions.street_lit and conditions.time_of_day == "night":
        ambient = ambient + colour((0.16, 0.13, 0.08))
    light = ambient + normal_light[..., None] * colour(SUNLIGHT[conditions.time_of_day])
    if conditions.time_of_day != "day":
        strength = 0.85 if conditions.time_of_day == "night" else 0.25
        light = light + (beam * strength * (1 + 4.0 * np.asarray(retro, dtype=np.float32)))[..., None] * colour(
            (1.0, 0.96, 0.86)
        )
    return albedo * light


def ground(road: Road, s: Array, d: Array, footprint: Array) -> tuple[Array, Array, Array]:
    """Albedo (..., 3), retro-reflection (...) and surface (uint8: 1 road, 2 shoulder, 3 verge) at road coordinates.

    `footprint` is a pixel's width on the ground in metres: what is thinner is blended, not dropped.
    """
    half, shoulder = road.half_width_m, road.shoulder_m
    aside = np.abs(d)
    surface = np.where(aside <= half, np.uint8(1), np.where(aside <= half + shoulder, np.uint8(2), np.uint8(3)))
    fade = np.clip(0.35 / np.maximum(footprint, 0.02), 0, 1)
    speck = grain(np.floor(s * 3), np.floor(d * 6)) * fade
    wear = np.cos((d + half) * (2 * np.pi / road.lane_width_m) * 2) * 0.012
    asphalt = colour(ASPHALT[road.kind]) * (1 + 0.10 * speck + wear)[..., None]
    patch = grain(np.floor(s / 3), np.floor(d / 2)) * 0.16 * fade
    verge = colour(VERGE[road.kind]) * (1 + patch + 0.12 * speck)[..., None]
    if road.kind == "urban":
        shoulder_colour = colour((0.44, 0.44, 0.45))
    else:
        shoulder_colour = colour(ASPHALT[road.kind]) * np.float32(0.88)
    albedo = np.where(
        (surface == 1)[..., None],
        asphalt,
        np.where((surface == 2)[..., None], shoulder_colour * (1 + 0.14 * speck)[..., None], verge),
    )
    retro = np.zeros(s.shape, dtype=np.float32)
    for mark in road.marks:
        width = np.float32(0.20)
        off = np.abs(d - np.float32(mark.d))
        cover = np.clip((width / 2 + footprint / 2 - off) / footprint, 0, 1) * np.minimum(1, width / footprint * 1.3)
        if mark.dashed:
            cover = cover * (np.mod(s, 12.0) < 6.0)
        paint = colour((0.86, 0.70, 0.20)) if mark.yellow else colour((0.90, 0.90, 0.88))
        albedo = albedo + cover[..., None] * (paint - albedo)
        retro = retro + cover * 0.4
    return albedo.astype(np.float32), retro, surface


def sky(camera: Camera, conditions: Conditions, azimuth_rad: float, seed: int) -> Array:
    """The sky with clouds and distant hills, (H, W, 3). `azimuth_rad` is where the vehicle heads."""
    rays = camera.rays
    elevation = rays[..., 2] / np.hypot(rays[..., 0], rays[..., 1])
    azimuth = np.arctan2(rays[..., 1], rays[..., 0]) + azimuth_rad
    blend = np.clip(elevation * 2.4, 0, 1)[..., None]
    time = conditions.time_of_day
    picture = colour(HORIZON[time]) * (1 - blend) + colour(ZENITH[time]) * blend
    shift = (seed % 97) * 0.37
    cloud = np.sin(azimuth * 7 + shift) * np.sin(elevation * 19 + azimuth * 3 + shift) + 0.6 * np.sin(
        azimuth * 17 + elevation * 31 + 2 * shift
    )
    tint = colour((1.0, 1.0, 1.0)) if time == "day" else colour(HORIZON[time])
    cover = np.clip((cloud - 0.25) * 0.55, 0, 0.75 if time != "night" else 0.15)[..., None]
    picture = picture * (1 - cover) + tint * cover
    hills = 0.035 + 0.022 * np.sin(azimuth * 5 + shift) + 0.012 * np.sin(azimuth * 13 + 2 * shift)
    hill = colour((0.33, 0.42, 0.44)) * (colour(AMBIENT[time]) * 1.5)
    picture = np.where((elevation < hills)[..., None], hill, picture)
    return np.asarray(picture, dtype=np.float32)


def sign_outline(motif: str, y: Array, z: Array) -> NDArray[np.bool_]:
    """Which points of a sign's plate are plate: y to the left and z up, in [-1, 1]."""
    if motif == "stop":
        return (np.abs(y) + np.abs(z) < 1.41) & (np.abs(y) < 1) & (np.abs(z) < 1)
    if motif == "yield":
        return np.abs(y) < (z + 1) / 2
    if motif in ("speed_limit", "railway_crossing"):
        return y * y + z * z < 1
    return np.ones(y.shape, dtype=np.bool_)


def sign_face(motif: str, y: Array, z: Array) -> Array:
    """A sign's colours at points of its plate, (N, 3)."""
    white, red, dark = colour((0.95, 0.95, 0.95)), colour((0.80, 0.06, 0.08)), colour((0.08, 0.08, 0.09))
    if motif == "stop":
        letters = (np.abs(z) < 0.24) & (np.abs(y) < 0.74)
        return np.where(letters[:, None], white, red)
    if motif == "yield":
        inner = (np.abs(y) < (z + 1) / 2 - 0.36) & (z < 0.72)
        return np.where(inner[:, None], white, red)
    if motif == "speed_limit":
        digits = (np.abs(z) < 0.36) & (np.abs(np.abs(y) - 0.28) < 0.16)
        return np.where((y * y + z * z > 0.50)[:, None], red, np.where(digits[:, None], dark, white))
    if motif == "railway_crossing":
        cross = np.abs(np.abs(y) - np.abs(z)) < 0.24
        return np.where(cross[:, None], dark, colour((0.95, 0.80, 0.10)))
    arrow = ((np.abs(y) < 0.16) & (z < 0.3)) | ((np.abs(y) < 0.62 - z) & (z > 0.1))
    frame = np.maximum(np.abs(y), np.abs(z)) > 0.88
    return np.where((arrow | frame)[:, None], white, colour((0.07, 0.25, 0.62)))


def face(
    part: Part, at: Array, axis: NDArray[Any], front: NDArray[np.bool_], conditions: Conditions
) -> tuple[Array, Array, float]:
    """Albedo (N, 3), emission (N, 3) and retro-reflection of a part where it was hit.

    `at` (N, 3) is the place in [-1, 1], `axis` (N,) the face's axis, `front` (N,) whether it looks along the axis.
    """
    x, y, z = at[:, 0], at[:, 1], at[:, 2]
    base: Array = np.broadcast_to(colour(part.colour), at.shape).copy()
    emission = np.zeros_like(base)
    retro = 0.0
    end, side = axis == 0, axis == 1
    if part.paint in ("car_body", "chassis"):
        if part.paint == "car_body":
            wheel = side & (np.hypot((np.abs(x) - 0.62) / 0.16, (z + 1) / 0.85) < 1)
            base[wheel | (end & (z < -0.55))] = (0.06, 0.06, 0.07)
            lamps = end & (np.abs(y) > 0.58) & (np.abs(z - 0.25) < 0.38)
        else:
            wheel = side & (np.mod(np.abs(x) * 7, 2) < 1.15)
            base[wheel] = (0.04, 0.04, 0.04)
            lamps = end & (np.abs(y) > 0.72) & (np.abs(z - 0.3) < 0.45)
        on = 0.25 if conditions.time_of_day == "day" else 0.9
        base[lamps & ~front] = (0.62, 0.05, 0.05)
        emission[lamps & ~front] = (on, 0.04, 0.04)
        base[lamps & front] = (0.85, 0.85, 0.80)
        emission[lamps & front] = (on * 1.2, on * 1.15, on)
    elif part.paint == "glass":
        window = (
            (axis < 2)
            & (np.abs(z + 0.05) < 0.72)
            & (np.where(side, np.abs(np.abs(x) - 0.45), np.abs(y)) < np.where(side, 0.38, 0.84))
        )
        base[window] = (0.13, 0.16, 0.20)
    elif part.paint == "trailer":
        base[(np.abs(z) > 0.93) & (axis < 2)] *= np.float32(0.6)
        base[end & (np.abs(y) < 0.035)] *= np.float32(0.65)
        if part.motif:
            across: Array = np.where(side, x * 3.2, y) / 0.62
            up = (z - 0.1) / 0.62
            inside = (axis < 2) & (np.maximum(np.abs(across), np.abs(up)) < 1) & sign_outline(part.motif, across, up)
            base[inside] = sign_face(part.motif, across[inside], up[inside])
    elif part.paint == "sign":
        base[:] = np.where((end & ~front)[:, None], sign_face(part.motif, y, z), np.float32(0.45))
        retro = 1.0
    elif part.paint == "billboard":
        base[np.mod(z * 2.5, 1) < 0.35] *= np.float32(0.72)
        across, up = (y - 0.45) / 0.36, z / 0.72
        inside = end & (np.maximum(np.abs(across), np.abs(up)) < 1) & sign_outline(part.motif, across, up)
        base[inside] = sign_face(part.motif, across[inside], up[inside])
    elif part.paint == "foliage":
        base *= (1 + 0.28 * grain(np.floor(x * 5 + 50 * axis), np.floor(y * 5) + 64 * np.floor(z * 5)))[:, None]
    elif part.paint == "building":
        width = np.where(end, part.size[1], part.size[0]) / 2
        across, up = np.where(end, y, x) * width, (z + 1) * part.size[2] / 2
        window = (axis < 2) & (np.mod(across, 2.6) < 1.3) & (np.mod(up, 3.0) > 1.2) & (np.mod(up, 3.0) < 2.5)
        base[window] = (0.22, 0.27, 0.33)
        if conditions.time_of_day == "night":
            bright = window & (
                grain(np.floor(across / 2.6) + 31 * axis, np.floor(up / 3.0) + np.floor(part.size[2] * 7)) > 0.45
            )
            emission[bright] = (0.55, 0.45, 0.25)
    elif part.paint == "wheel":
        base[side & (np.hypot(x, z) < 0.7)] = (0.30, 0.31, 0.32)
    return base, emission, retro
