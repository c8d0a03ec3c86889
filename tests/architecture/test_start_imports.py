"""A command that asks the service imports little: its processor time is that of its imports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client.fake_service import (
    END,
    RUN,
    FakeService,
    candidate_json,
    page,
    problem_json,
    run_fake_service,
    run_json,
    say,
    serve_best,
    stream,
)

ROOT = Path(__file__).parents[2]

CLIENT = {"httpx"}
"""Packages of the client."""

NEVER = {
    *("alembic", "anthropic", "celery", "click", "cryptography", "fastapi", "jinja2", "numpy", "plotly", "psycopg"),
    *(
        "asyncio",
        "pydantic_settings",
        "pygments",
        "redis",
        "rich.console",
        "scipy",
        "sqlalchemy",
        "starlette",
        "torch",
        "uvicorn",
    ),
    *("evaluators", "service", "workers"),
    *(
        "speciate.cli.local_service",
        "speciate.client.aio.client",
        "speciate.client.aio.runs",
        "speciate.client.sync.declarations",
    ),
    *("speciate.embedded", "speciate.problems.loader", "speciate.prompts", "speciate.runs", "speciate.search"),
    *("speciate.storage", "speciate.tournaments"),
}
"""Modules that no such command imports when its output is a pipe; ``rich.console`` draws on terminals."""

SHOW = "import sys; from speciate.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"

ASKING = {
    "runs list": (),
    f"runs show {RUN}": (),
    f"runs watch {RUN} --json": (),
    f"best {RUN}": (),
    f"candidates show {RUN}/1": (),
    f"candidates list {RUN}": (),
    "problems list": (),
    "problems show packing": (),
    "policies list": (),
    "unlocks": (),
    "webhooks list": (),
    "strategies": (),
    # The records of these contain the declarations and the models of the report.
    "tournaments list": ("speciate.client.sync.declarations", "speciate.tournaments"),
    "campaigns list": ("speciate.client.sync.declarations", "speciate.tournaments"),
}
"""Commands, with the modules of ``NEVER`` that they need."""


@pytest.fixture(scope="module")
def service() -> Iterator[FakeService]:
    with run_fake_service() as made:
        for path in ("problems", "policies", "unlocks", "webhooks", "strategies", "tournaments", "campaigns"):
            made.on("GET", f"/v1/{path}", page())
        made.on("GET", "/v1/runs", page(run_json()))
        made.on("GET", f"/v1/runs/{RUN}", say(run_json(state="completed", unlocked=True)))
        made.on("GET", f"/v1/runs/{RUN}/unlocks", page())
        made.on("GET", f"/v1/runs/{RUN}/events", stream(END))
        made.on("GET", f"/v1/runs/{RUN}/candidates", page(candidate_json(1)))
        made.on("GET", f"/v1/runs/{RUN}/candidates/1", say(candidate_json(1)))
        serve_best(made)
        made.on("GET", "/v1/problems/packing", say(problem_json()))
        yield made


def _imported(command: str, url: str) -> set[str]:
    """Return the modules that a command imports, and the packages that contain them."""
    environment = {"SPECIATE_URL": url, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    arguments = [sys.executable, "-c", SHOW, *command.split()]
    done = subprocess.run(arguments, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr[:500])
    return set(done.stderr.split())


@pytest.mark.parametrize("command", ASKING)
def test_an_asking_command_imports_no_slow_module(command: str, service: FakeService) -> None:
    assert NEVER & _imported(command, service.url) - set(ASKING[command]) == set()


@pytest.mark.parametrize("command", ["--help", "--version", "run --help"])
def test_help_and_version_import_no_client(command: str) -> None:
    unused = (NEVER | CLIENT) - {"rich.console", "pygments"}  # Typer's help draws with them
    if not command.startswith("run"):  # its options are those of a model
        unused |= {"pydantic"}
    assert unused & _imported(command, "http://127.0.0.1:1") == set()


WATCH = """
import os, sys
class Watch:
    def find_spec(self, name, *_):
        if name == "numpy":
            print(os.environ.get("OPENBLAS_NUM_THREADS"), flush=True)
sys.meta_path.insert(0, Watch())
from speciate.cli import main
main()
"""


def test_serving_limits_the_threads_of_matrix_products_before_numpy_reads_them() -> None:
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", WATCH, "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        try:
            assert serving.stdout.readline() == "1\n"
        finally:
            serving.terminate()
