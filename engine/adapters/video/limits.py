"""How much one piece of media may cost us."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class MediaLimits:
    """Caps on what is taken (the media) and on what looking into it may use (the child process).

    A request's `wall_s` counts only the time that its caller waits for the child. `memory_bytes` is the child's address
    space. A child is replaced after `requests_per_child` requests or `child_age_s` seconds, which bounds what leaks.
    """

    file_bytes: int = 2 << 30
    image_bytes: int = 64 << 20
    width: int = 8192
    height: int = 8192
    pixels: int = 36_000_000  # 8K video has 33 million
    duration_s: float = 900.0
    frames: int = 60_000
    wall_s: float = 120.0
    cpu_s: int = 240
    memory_bytes: int = 4 << 30
    decoder_threads: int = 2
    requests_per_child: int = 500
    child_age_s: float = 1800.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> MediaLimits:
        return cls(**json.loads(text))
