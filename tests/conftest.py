"""What every test may ask for. The fixtures themselves stand in tests/plugins, one kind of service a file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "plugins"))

pytest_plugins = [
    "postgres_fixtures",
    "redis_fixtures",
    "worker_fixtures",
    "loop_fixtures",
    "weights_fixtures",
    "role_fixtures",
    "scorer_server",
    "label_studio_fixtures",
    "labeling_fixtures",
    "data_fixtures",
    "erasure_fixtures",
    "browser_fixtures",
]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """An empty data folder of this test's own."""
    folder = tmp_path / "longtail"
    folder.mkdir()
    return folder
