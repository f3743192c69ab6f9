"""A Label Studio of our own: from its own virtual environment, in a database of its own on our PostgreSQL."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from services.local.postgres import PORT, ROLE, PostgresServer
from services.local.refusals import CannotStart
from services.settings import system_environment

DATABASE = "label_studio"


@dataclass(frozen=True)
class LabelStudioServer:
    """One Label Studio: where it listens, its folder, and its first user, who is its administrator."""

    host: str
    port: int
    folder: Path
    email: str
    password: str
    token: str
    database: str = DATABASE

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def command(self, venv: Path) -> list[str]:
        """The command line of the server. The user is made at the first start and kept afterwards.

        Raises RuntimeError when Label Studio isn't installed in `venv`.
        """
        program = venv / "bin" / "label-studio"
        if not program.exists():
            raise CannotStart(f"no Label Studio in {venv}: run `make setup`, or set LONGTAIL_LABEL_STUDIO_URL")
        # Started through Python, because a virtual environment's scripts stop working when it is moved.
        return [
            str(venv / "bin" / "python"), "-P",
            "-c", "import sys; from label_studio.server import main; sys.exit(main())",
            "start", "--no-browser", "--internal-host", self.host, "--port", str(self.port),
            "--enable-legacy-api-token",
        ]  # fmt: skip

    def environment(self, postgres: PostgresServer) -> dict[str, str]:
        """The environment of the server. Secrets go here, because every user of the machine can read command lines."""
        return {
            **system_environment(),
            "USERNAME": self.email,
            "PASSWORD": self.password,
            "USER_TOKEN": self.token,
            "HOST": self.url,
            "LABEL_STUDIO_BASE_DATA_DIR": str(self.folder),
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "DJANGO_DB": "default",
            "POSTGRE_HOST": str(postgres.sockets),
            "POSTGRE_PORT": str(PORT),
            "POSTGRE_USER": ROLE,
            "POSTGRE_PASSWORD": "",
            "POSTGRE_NAME": self.database,
            "DISABLE_SIGNUP_WITHOUT_LINK": "true",
            # Our pages and webhooks are on this machine, which Label Studio would refuse to call.
            "SSRF_PROTECTION_ENABLED": "false",
            "LOCAL_FILES_SERVING_ENABLED": "false",
            # It tells nobody about us.
            "COLLECT_ANALYTICS": "false",
            "LATEST_VERSION_CHECK": "false",
            "SENTRY_DSN": "",
            "FRONTEND_SENTRY_DSN": "",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def is_ready(self) -> bool:
        """Whether the server answers its health check. The first answer waits until all is loaded."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=60) as answer:
                return bool(json.load(answer)["status"] == "UP")
        except (OSError, ValueError, KeyError, urllib.error.URLError):
            return False
