"""Any command may train: its folder is whole by itself, what it leaves is checked, and nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from onnx_models import road_declared, road_model
from PIL import Image
from road_scenes import HEIGHT, LIGHT, ROAD, WIDTH, Scene

from engine.adapters.by_format import CheckByFormat, TrainerByName
from engine.adapters.command_trainer import CommandTrainer
from engine.adapters.model_checks import SafetensorsCheck
from engine.adapters.onnx.check import OnnxCheck
from engine.adapters.training_folder import TrainingCrashed
from engine.ports import TrainedModel, TrainingPlan, TrainingProgress, TrainingRefused, TrainingSample

CHECK = CheckByFormat({"onnx": OnnxCheck(), "hydranet-safetensors": SafetensorsCheck()})
ENVIRONMENT = {"PATH": os.defpath, "GREETING": "from the operator"}
PREAMBLE = """
import argparse, json, os, pathlib, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("folder", type=pathlib.Path)
parser.add_argument("--attempt", type=int)
given = parser.parse_args()
folder, out = given.folder, given.folder / f"attempt-{given.attempt}"
def leave(name, document):
    (out / name).write_text(json.dumps(document))
"""


@pytest.fixture
def samples(tmp_path: Path) -> list[TrainingSample]:
    made = []
    for seed in range(3):
        path = tmp_path / f"{seed}.png"
        Image.frombytes("RGB", (WIDTH, HEIGHT), Scene(seed).picture(0).rgb).save(path)
        truth = Scene(seed).answers(0)
        made.append(TrainingSample(f"s{seed}", path, {"road": truth["road"]}, {"road": ["road"]}))
    return made


@pytest.fixture
def made_model(tmp_path: Path) -> Path:
    path = tmp_path / "made.onnx"
    path.write_bytes(road_model().SerializeToString())
    return path


@pytest.fixture
def train(tmp_path: Path, samples: list[TrainingSample]) -> Callable[..., TrainedModel]:
    """Run these lines, after the preamble, as the operator's command."""

    def run(lines: str, heartbeat: Any = None, attempt: int = 1, **plan: Any) -> TrainedModel:
        script = tmp_path / "train.py"
        script.write_text(PREAMBLE + textwrap.dedent(lines))
        trainer = CommandTrainer([sys.executable, str(script)], ENVIRONMENT, CHECK, 0.05, 0.01)
        asked = TrainingPlan([ROAD, LIGHT], 7, 10, 2, HEIGHT, WIDTH, "none", 0.1, 5, 1, trainer="mine", **plan)
        return trainer.train(tmp_path / "run", asked, samples, attempt, heartbeat or (lambda progress=None: None))

    return run


def onnx_lines(model: Path, config: dict[str, Any] | None = None) -> str:
    return textwrap.dedent(
        f"""
        (out / "m.onnx").write_bytes(pathlib.Path({str(model)!r}).read_bytes())
        leave("artifact.json", {{"format": "onnx", "file": "m.onnx"}})
        leave("model.json", json.loads({json.dumps(config or road_declared())!r}))
        """
    )


def test_a_command_gets_a_whole_folder_and_gives_an_onnx_model(
    train: Callable[..., TrainedModel], tmp_path: Path, samples: list[TrainingSample], made_model: Path
) -> None:
    heard: list[TrainingProgress] = []

    def heartbeat(progress: TrainingProgress | None = None) -> None:
        if progress is not None:
            heard.append(progress)

    trained = train(
        onnx_lines(made_model)
        + textwrap.dedent(
            """
            lines = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
            config = json.loads((folder / "config.json").read_text())
            with (out / "progress.jsonl").open("a") as progress:
                for step in (5, 10):
                    progress.write(json.dumps({"step": step, "steps": 10, "losses": {"road": 1 / step}}) + "\\n")
                    progress.flush()
                    time.sleep(0.1)
            pictures = [(folder / line["picture"]).read_bytes() for line in lines]
            leave("result.json", {
                "seed": config["seed"], "heads": [head["name"] for head in config["heads"]],
                "pictures": [len(picture) for picture in pictures], "where": [line["picture"] for line in lines],
                "runs": lines[0]["labels"]["road"]["value"]["runs"][:1], "option": config["options"],
                "environment": dict(os.environ), "cwd": os.getcwd(),
            })
            """
        ),
        heartbeat,
        options={"epochs": 3},
    )
    assert trained.files.format == "onnx"
    assert trained.files.weights.read_bytes() == made_model.read_bytes()
    assert [head.name for head in trained.files.heads] == ["road", "light"]
    told = trained.metrics
    assert (told["seed"], told["heads"], told["option"]) == (7, ["road", "light"], {"epochs": 3})
    assert told["pictures"] == [sample.picture.stat().st_size for sample in samples]
    assert all(not Path(where).is_absolute() for where in told["where"])
    assert told["cwd"] == str((tmp_path / "run").resolve())
    assert told["environment"]["GREETING"] == "from the operator"
    assert not [name for name in told["environment"] if name.startswith(("LONGTAIL", "PYTHONPATH"))]
    assert [(progress.step, progress.losses) for progress in heard][-1] == (10, {"road": 0.1})


def test_it_may_change_its_pictures_and_ours_stay(
    train: Callable[..., TrainedModel], samples: list[TrainingSample], made_model: Path
) -> None:
    before = [sample.picture.read_bytes() for sample in samples]
    train(
        onnx_lines(made_model)
        + "for p in (folder / 'pictures').iterdir(): p.write_bytes(b'x')\nleave('result.json', {})\n"
    )
    assert [sample.picture.read_bytes() for sample in samples] == before


def test_it_may_start_from_the_champion_whatever_that_is(train: Callable[..., TrainedModel], made_model: Path) -> None:
    from engine.ports import ModelFiles

    champion = ModelFiles("onnx", made_model, road_declared())
    trained = train(
        """
        warm = json.loads((folder / "config.json").read_text())["warm_start"]
        (out / "m.onnx").write_bytes((folder / warm["weights"]).read_bytes())
        leave("artifact.json", {"format": warm["format"], "file": "m.onnx"})
        leave("model.json", warm["config"])
        leave("result.json", {})
        """,
        warm_start=champion,
    )
    assert trained.files.weights.read_bytes() == made_model.read_bytes()


def test_exit_code_3_is_a_refusal_with_its_reason_and_any_other_a_crash(train: Callable[..., TrainedModel]) -> None:
    with pytest.raises(TrainingRefused, match="too few labels"):
        train('leave("refused.json", {"reason": "too few labels"}); sys.exit(3)')
    with pytest.raises(TrainingRefused, match=r"no refused\.json.*what a day"):
        train('(out / "refused.json").unlink(); print("what a day"); sys.exit(3)')
    with pytest.raises(TrainingCrashed, match="code 7: out of memory"):
        train('sys.stderr.write("out of memory"); sys.exit(7)')
    with pytest.raises(TrainingCrashed, match="code 137"):
        train("os.kill(os.getpid(), 9)")


def test_a_command_that_is_not_there_is_a_crash_that_names_it(tmp_path: Path, samples: list[TrainingSample]) -> None:
    trainer = CommandTrainer(["/no/such/trainer"], ENVIRONMENT, CHECK)
    plan = TrainingPlan([ROAD], 1, 1, 1, HEIGHT, WIDTH, "none", 0.1, 1, 1)
    with pytest.raises(TrainingCrashed, match="/no/such/trainer can't be started"):
        trainer.train(tmp_path / "run", plan, samples, 1, lambda progress=None: None)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("", "model.json can't be read"),
        ("leave('artifact.json', {'format': 'pickle', 'file': 'x'}); leave('model.json', {})", "must say a format"),
        ("leave('artifact.json', {'format': 'onnx', 'file': '../config.json'}); leave('model.json', {})", "no file in"),
        (
            "os.symlink('/etc/hostname', out / 'l'); leave('artifact.json', {'format': 'onnx', 'file': 'l'});"
            "leave('model.json', {})",
            "no file in",
        ),
        (
            "(out / 'x').write_bytes(b'x'); leave('artifact.json', {'format': 'onnx', 'file': 'x'});"
            "leave('model.json', {'heads': [{'name': 'moon'}]})",
            "must list the model's `heads`",
        ),
        (
            "(out / 'x').write_bytes(b'x'); leave('artifact.json', {'format': 'onnx', 'file': 'x'});"
            f"leave('model.json', json.loads({json.dumps(road_declared())!r}))",
            "no ONNX model",
        ),
        (
            "(out / 'weights.safetensors').write_bytes(b'pickle'); leave('model.json', {'heads': ['road']})",
            "no safetensors file",
        ),
    ],
)
def test_an_artifact_that_can_not_be_taken_refuses_the_run(
    train: Callable[..., TrainedModel], lines: str, why: str
) -> None:
    with pytest.raises(TrainingRefused, match=why):
        train(lines)


def test_an_onnx_model_that_is_not_as_declared_refuses_the_run(
    train: Callable[..., TrainedModel], made_model: Path
) -> None:
    declared = road_declared()
    declared["heads"][0]["outputs"] = {"scores": "nothing"}
    with pytest.raises(TrainingRefused, match="no output 'nothing'"):
        train(onnx_lines(made_model, declared) + "leave('result.json', {})")


def test_metrics_that_are_no_json_and_progress_that_is_none_refuse_the_run(
    train: Callable[..., TrainedModel], made_model: Path
) -> None:
    with pytest.raises(TrainingRefused, match=r"result\.json can't be read: NaN"):
        train(onnx_lines(made_model) + "(out / 'result.json').write_text('{\"loss\": NaN}')")
    with pytest.raises(TrainingRefused, match=r"progress\.jsonl is not of the form"):
        train("(out / 'progress.jsonl').write_text('step 1 of 10\\n'); time.sleep(20)", attempt=2)


FAMILY = """
import subprocess
script = "import os, time; os.setsid(); open({name!r}, 'w').write(str(os.getpid())); time.sleep(600)"
name = str(folder / "grandchild")
subprocess.Popen([sys.executable, "-c", script.format(name=name + ".partial")])
while not os.path.exists(name + ".partial") or not open(name + ".partial").read(): time.sleep(0.01)
os.rename(name + ".partial", name)
"""


def grandchild(folder: Path, timeout_s: float = 10) -> psutil.Process:
    deadline = time.monotonic() + timeout_s
    while not (folder / "grandchild").exists():
        assert time.monotonic() < deadline, "the command started nothing"
        time.sleep(0.01)
    return psutil.Process(int((folder / "grandchild").read_text()))


def gone(process: psutil.Process, timeout_s: float = 10) -> bool:
    deadline = time.monotonic() + timeout_s
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_what_the_heartbeat_raises_ends_all_that_the_command_started(
    train: Callable[..., TrainedModel], tmp_path: Path
) -> None:
    found: list[psutil.Process] = []

    class LeaseLost(RuntimeError):
        """The work is no longer ours."""

    def lose(progress: TrainingProgress | None = None) -> None:
        if (tmp_path / "run" / "grandchild").exists():
            found.append(grandchild(tmp_path / "run"))
            raise LeaseLost

    with pytest.raises(LeaseLost):
        train(FAMILY + "time.sleep(600)", lose)
    assert gone(found[0], 0.1)


def test_what_it_leaves_running_is_ended_when_it_is_done(
    train: Callable[..., TrainedModel], tmp_path: Path, made_model: Path
) -> None:
    train(onnx_lines(made_model) + FAMILY + "leave('result.json', {})")
    assert gone_by_number(int((tmp_path / "run" / "grandchild").read_text()))


def gone_by_number(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process, that trains with a command that has a family."""
    script = tmp_path / "forever.py"
    script.write_text(PREAMBLE + FAMILY + "time.sleep(600)")
    program = textwrap.dedent(
        f"""
        import pathlib
        from engine.adapters.command_trainer import CommandTrainer
        from engine.domain.ontology import Head, Kind
        from engine.ports import TrainingPlan
        plan = TrainingPlan([Head("road", Kind.MASK, ("road",))], 1, 1, 1, 8, 8, "none", 0.1, 1, 1)
        folder = pathlib.Path({str(tmp_path / "run")!r})
        trainer = CommandTrainer({[sys.executable, str(script)]!r}, {ENVIRONMENT!r}, None)
        trainer.train(folder, plan, [], 1, lambda progress=None: None)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program])
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def test_all_of_it_dies_with_its_parent(parent: subprocess.Popen[bytes], tmp_path: Path) -> None:
    far = grandchild(tmp_path / "run")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert gone(far)


def test_a_run_that_names_no_trainer_of_the_operators_is_refused(tmp_path: Path) -> None:
    plan = TrainingPlan([ROAD], 1, 1, 1, HEIGHT, WIDTH, "none", 0.1, 1, 1, trainer="yolo")
    trainers = TrainerByName({"mine": CommandTrainer(["true"], ENVIRONMENT, CHECK)})
    with pytest.raises(TrainingRefused, match=r"no trainer 'yolo' here; there are: mine.*LONGTAIL_TRAINERS"):
        trainers.train(tmp_path, plan, [], 1, lambda progress=None: None)
