"""Settings are read from the environment once, can't be changed, and reach a child process whole."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from services.settings import PREFIX, Settings, operators_environment, system_environment


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGTAIL_API_PORT", "9001")
    monkeypatch.setenv("LONGTAIL_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("LONGTAIL_SIGNING_SECRET", "hush")
    settings = Settings()
    assert settings.api_port == 9001
    assert settings.blobs == str(tmp_path / "blobs")
    assert settings.signing_secret.get_secret_value() == "hush"
    assert "hush" not in repr(settings)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().api_port = 1


def test_an_empty_variable_is_one_that_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_DATABASE_URL", "")
    assert Settings().database_url is None


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("DATABASE_URL", "sqlite:///x.db", "only database"),
        ("PUBLIC_URL", "longtail.example.com", "whole http"),
        ("API_PORT", "70000", "less than or equal to 65535"),
        ("THREADS", "0", "greater than 0"),
        ("LOG_LEVEL", "loud", "'debug', 'info'"),
    ],
)
def test_a_wrong_value_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(ValidationError, match=says):
        Settings()


def test_the_api_is_reached_by_its_public_url_else_by_this_machines_address() -> None:
    assert Settings(api_host="0.0.0.0", api_port=8123).api_url == "http://127.0.0.1:8123"
    assert Settings(public_url="https://longtail.example.com/").api_url == "https://longtail.example.com"


def test_a_child_process_reads_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGTAIL_LOG_LEVEL", "debug")
    settings = Settings(data_dir=tmp_path, label_studio_token="t0ken", threads=2).with_values(api_port=0)
    environment = settings.child_environment()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings
    assert environment["OMP_NUM_THREADS"] == "2"


def test_trainers_are_commands_by_name_and_reach_a_child_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LONGTAIL_TRAINERS", '{"yolo": ["python3", "/opt/it\'s here/train.py"]}')
    settings = Settings(data_dir=tmp_path)
    assert settings.trainers == {"yolo": ["python3", "/opt/it's here/train.py"]}
    for name, value in settings.child_environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings
    for wrong in ('{"hydranet": ["x"]}', '{"yolo": []}', '{"yolo": "rm -rf"}', '{"": ["x"]}'):
        monkeypatch.setenv("LONGTAIL_TRAINERS", wrong)
        with pytest.raises(ValidationError):
            Settings()


def test_a_command_of_the_operators_sees_their_environment_without_our_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LONGTAIL_SIGNING_SECRET", "hush")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    environment = operators_environment()
    assert "hush" not in environment.values()
    assert environment["SLURM_CONF"] == "/etc/slurm.conf"


def test_changed_values_are_validated_too() -> None:
    with pytest.raises(ValidationError):
        Settings().with_values(api_port=-1)


def test_a_program_of_others_sees_none_of_our_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LONGTAIL_SIGNING_SECRET", "hush")
    monkeypatch.setenv("POSTGRE_HOST", "elsewhere")
    environment = system_environment()
    assert "hush" not in environment.values()
    assert "POSTGRE_HOST" not in environment
    assert environment["PATH"]
