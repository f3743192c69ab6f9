"""Rules about who imports what that import-linter can't say, read from the source."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def imported(source: str, module: tuple[str, ...]) -> Iterator[str]:
    """Every module that a source imports, at its top or inside a function, by its full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module[: -node.level] if node.level else ()
            yield ".".join([*package, *([node.module] if node.module else [])])


def strangers(folder: str, allowed: set[str], own: tuple[str, ...]) -> list[str]:
    """The imports in a folder that are neither of the standard library, nor allowed, nor of our own named packages."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        for name in imported(path.read_text(), path.relative_to(ROOT).with_suffix("").parts):
            top = name.partition(".")[0]
            if top in sys.stdlib_module_names or top in allowed or any(f"{name}.".startswith(f"{o}.") for o in own):
                continue
            found.append(f"{path.relative_to(ROOT)}: {name}")
    return found


def test_the_domain_imports_the_standard_library_alone() -> None:
    assert strangers("engine/domain", set(), ("engine.domain",)) == []


@pytest.mark.parametrize("package", ["acquisition", "evidence"])
def test_choosing_and_judging_import_numpy_and_the_domain_alone(package: str) -> None:
    assert strangers(f"engine/{package}", {"numpy"}, ("engine.domain", f"engine.{package}")) == []


def test_the_networks_import_nothing_of_ours() -> None:
    found = [
        s for s in strangers("models", set(), ("models",)) if s.partition(": ")[2].startswith(("engine", "services"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import numpy.linalg as la", "numpy.linalg"),
        ("def f():\n    from engine.store import clips", "engine.store"),
        ("from . import answers", "engine.domain"),
        ("from ..store import clips", "engine.store"),
    ],
)
def test_the_reader_sees_every_form_of_import(source: str, name: str) -> None:
    assert list(imported(source, ("engine", "domain", "ontology"))) == [name]
