"""Rules about files: their names, their lengths, and which of them may read the environment."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("engine", "models", "services", "benchmarks")
LONGEST = 400
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "misc", "manager", "managers"}
# Hosts of registries; homes and working folders, but not the folders that every system has. Put together from parts, so
# that this file names none itself.
REGISTRIES = ("pypi", "pythonhosted", "npmjs", "debian", "pytorch")
FOLDERS = ("work", "farm", "workspace", "root", r"home/\w+", r"Users/\w+", r"mnt/\w+")
OF_ONE_PLACE = re.compile(
    r"(?:^|[\s/@.\"'=])(?:" + "|".join(map(re.escape, REGISTRIES)) + r")\.(?:org|com|net)\b"
    r"|(?<![\w.~}*])/(?:" + "|".join(FOLDERS) + ")/"
)
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def sources(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def environment_reads(source: str) -> list[int]:
    """The lines that touch the environment through `os`, however it was imported."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT:
            lines.append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            lines.extend(node.lineno for alias in node.names if alias.name in ENVIRONMENT)
    return lines


def test_there_are_sources_to_look_at() -> None:
    assert len(sources(*PACKAGES)) > 30


def test_no_file_is_too_long() -> None:
    folders = (*PACKAGES, "tests", "migrations")
    long = {str(p.relative_to(ROOT)): n for p in sources(*folders) if (n := len(p.read_text().splitlines())) > LONGEST}
    assert long == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    paths = [p.relative_to(ROOT) for p in sources(*PACKAGES, "tests")]
    assert [str(p) for p in paths if BANNED_NAMES & {*p.parts[:-1], p.stem}] == []


def test_every_package_has_an_empty_init() -> None:
    packages = {path.parent for path in sources(*PACKAGES)}
    missing = [str(folder.relative_to(ROOT)) for folder in packages if not (folder / "__init__.py").exists()]
    filled = [str(p.relative_to(ROOT)) for p in sources(*PACKAGES) if p.name == "__init__.py" and p.read_text().strip()]
    assert missing == []
    assert filled == []


def test_tests_are_no_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_only_the_settings_read_the_environment() -> None:
    readers = {str(path.relative_to(ROOT)) for path in sources(*PACKAGES) if environment_reads(path.read_text())}
    assert readers == {"services/settings.py"}


@pytest.mark.parametrize(
    "source",
    ["import os\nos.environ['A']", "import os as o\no.getenv('A')", "from os import environ", "x.os.putenv('a', '')"],
)
def test_the_check_sees_a_read_of_the_environment(source: str) -> None:
    assert environment_reads(source)


def test_the_committed_text_names_no_registry_and_no_folder_of_one_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    files = [ROOT / name for name in listed.stdout.splitlines()] or sources(*PACKAGES)
    found = []
    for path in files:
        if path == Path(__file__) or not path.is_file() or path.suffix in {".png", ".jpg", ".mp4", ".woff2"}:
            continue
        if OF_ONE_PLACE.search(path.read_text(errors="ignore")):
            found.append(str(path.relative_to(ROOT)))
    assert found == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (f'ROOT = Path("{"/".join(("", "work", "main"))}")', True),
        (f"see {'/'.join(('', 'home', 'ada', 'drives'))} for more", True),
        (f"pip install --index-url=https://{'.'.join(('pypi', 'org'))}/simple", True),
        (f"npm config set registry https://registry.{'.'.join(('npmjs', 'org'))}/", True),
        (f"the framework/main part; a{'/'.join(('', 'work', 'tree'))}; ~{'/'.join(('', 'work', ''))}", False),
        ("a folder like /var/lib/longtail/ is on every machine", False),
    ],
)
def test_the_check_sees_a_registry_and_a_folder(line: str, found: bool) -> None:
    assert bool(OF_ONE_PLACE.search(line)) is found
