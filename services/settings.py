"""The settings of every process: the only file that reads the environment.

Each field is read from `LONGTAIL_` + its name in capitals. A process that starts another one hands its settings on
with `child_environment`, so that both read the same values.
"""

from __future__ import annotations

import json
import os
from ipaddress import ip_network
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "LONGTAIL_"

# What any program needs of the system's environment.
_SYSTEM = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE")


class Settings(BaseSettings):
    """All that can be set, immutable once read."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid", env_ignore_empty=True)

    # --- where things are ---
    data_dir: Path = Path(".longtail")
    """Folder of everything that one machine keeps: database, blobs, logs, runs, caches."""
    database_url: str | None = None
    """SQLAlchemy URL of the database (`postgresql+psycopg://…`); `longtail up` starts one where it is not set."""
    redis_url: str | None = None
    """URL of the Celery broker (`redis://…` or `redis+socket://…`); `longtail up` starts one where it is not set."""
    blob_root: str | None = None
    """Folder or `s3://bucket/prefix` of managed blobs; `data_dir/blobs` where it is not set."""

    # --- the API and its pages ---
    api_host: str = "127.0.0.1"
    api_port: int = Field(default=8000, ge=0, le=65535)
    """0 takes any free port (`longtail up` only)."""
    public_url: str | None = None
    """How vehicles, people and Label Studio reach the API; `http://api_host:api_port` where it is not set."""
    api_token: SecretStr | None = None
    """Token with which commands reach an API elsewhere; on one machine they use that of `longtail up`."""
    signing_secret: SecretStr | None = None
    """Signs expiring media links; `longtail up` makes one and keeps it in data_dir."""
    max_upload_bytes: int = Field(default=2 * 1024**3, gt=0)
    """Largest clip that the API takes in one request."""

    # --- the label tool ---
    label_studio_url: str | None = None
    """Where a running Label Studio is; `longtail up` starts one where it is not set."""
    label_studio_token: SecretStr | None = None
    """Legacy access token of the Label Studio user that Longtail works as."""
    label_studio_host: str = "127.0.0.1"
    """Address that a Label Studio started by `longtail up` listens on."""
    label_studio_port: int = Field(default=8080, ge=0, le=65535)
    """Port of a Label Studio started by `longtail up`; 0 takes any free port."""
    label_studio_venv: Path = Path(".venv-label-studio")
    """Virtual environment that Label Studio is installed in, relative to the checkout."""
    label_studio_email: str = "longtail@example.com"
    """Sign-in of the user that `longtail up` makes in Label Studio; `longtail up` shows the password."""

    label_window: int = Field(default=50, gt=0)
    """Tasks that are open in the label tool at a time, for each ontology; the rest waits in our queue."""

    # --- models ---
    threads: int = Field(default=1, gt=0)
    """Threads of one torch process; more than one only where it has the machine alone."""

    trainers: dict[str, list[str]] = Field(default_factory=dict)
    """Commands that train, by the name under which a line's settings ask for them: `{"yolo": ["python3",
    "/opt/train.py"]}`. Each is called as `COMMAND… FOLDER --attempt N` by a retraining worker."""

    outbound_networks: list[str] = Field(default_factory=list)
    """Networks besides the public internet that URLs given by users may lead to: `["10.1.0.0/16"]`."""

    # --- how processes behave ---
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["console", "json"] = "console"
    tick_seconds: float = Field(default=5.0, gt=0)
    """Time between two sweeps of a worker."""
    poll_seconds: float = Field(default=2.0, gt=0)
    """Longest time that an idle worker goes without looking into the ledger, whatever messages it gets."""
    lease_seconds: float | None = Field(default=None, gt=0)
    """How long a silent worker keeps a job; each kind of job has its own where it is not set."""
    failpoints: str = ""
    """For tests: points where a process is to die, as `name=kill[@nth],…` (engine/jobs/failpoints.py)."""

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("database_url")
    @classmethod
    def _psycopg(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith("postgresql+psycopg://"):
            raise ValueError(
                "must begin with postgresql+psycopg:// (PostgreSQL through psycopg 3 is the only database)"
            )
        return value

    @field_validator("outbound_networks")
    @classmethod
    def _networks(cls, value: list[str]) -> list[str]:
        return [str(ip_network(network)) for network in value]

    @field_validator("trainers")
    @classmethod
    def _named(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        for name, command in value.items():
            if name == "hydranet" or not name or not command or not all(command):
                raise ValueError(f"trainer {name!r} must have another name than ours, hydranet, and a command")
        return value

    @field_validator("public_url", "label_studio_url")
    @classmethod
    def _http(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must be a whole http:// or https:// URL")
        return value.rstrip("/")

    @property
    def blobs(self) -> str:
        """Folder or `s3://` URL of managed blobs."""
        return self.blob_root or str(self.data_dir / "blobs")

    @property
    def api_url(self) -> str:
        """How the API is reached from outside."""
        return self.public_url or f"http://{self.api_connect_host}:{self.api_port}"

    @property
    def api_connect_host(self) -> str:
        """The address at which this machine itself reaches the API: `api_host`, unless that is "every address"."""
        return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.api_host, self.api_host)

    def with_values(self, **changes: object) -> Settings:
        """A copy with these fields changed, validated as the environment would be."""
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return Settings(**{**values, **changes})

    def child_environment(self) -> dict[str, str]:
        """The environment of a process of ours that is to read these very settings."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        environment["OMP_NUM_THREADS"] = str(self.threads)
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                value = value.get_secret_value()
            if value is not None:
                environment[PREFIX + name.upper()] = json.dumps(value) if isinstance(value, dict | list) else str(value)
        return environment


def operators_environment() -> dict[str, str]:
    """The environment of a command that the operator told us to run: theirs, without our settings and their secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def system_environment() -> dict[str, str]:
    """The environment of a program that is not ours: no settings of ours, and no stray variable that it might obey."""
    environment = {name: os.environ[name] for name in _SYSTEM if name in os.environ}
    environment.setdefault("PATH", os.defpath)
    return environment
