"""A disk that fills up pauses the run with the reason; with space again it completes, with no row lost or broken."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from speciate.cli.local_service import LocalService
from speciate.domain.policy import Policy
from speciate.domain.run import RunSpec
from speciate.settings import Settings
from speciate.storage.stores import open_stores
from tests.integration.faults.conftest import LEASE_S, Service
from tests.support.runs import scored_toy_problem

pytestmark = [pytest.mark.fault, pytest.mark.servers]

DISK_BYTES = 400 << 20
MIN_FREE_BYTES = 100 << 20
BUDGET = 400


def _template() -> str:
    """A hundred thousand characters that cannot be compressed into nothing."""
    noise = np.random.default_rng(0).bytes(50_000).hex()
    return f"```python\nx = 1.{{number}}\ny = 3\n# {noise}\n```"


@pytest.fixture
def small_disk() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="speciate-disk-"))
    place.chmod(0o711)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=711", "tmpfs", place], check=False)
    if mounted.returncode != 0:
        place.rmdir()
        pytest.skip("a small disk cannot be mounted here: mounting needs root")
    yield place
    subprocess.run(["umount", "-l", place], check=True)
    place.rmdir()


def test_a_full_disk_pauses_the_run(small_disk: Path) -> None:
    settings = Settings(data_dir=small_disk / "data", port=0, lease_s=LEASE_S, min_free_bytes=MIN_FREE_BYTES)
    with LocalService(settings) as stack:
        for _ in stack.start():
            pass
        stores = open_stores(stack.settings)
        service = Service(stack, stores)
        policy = Policy(slug="long", kind="scripted", options={"template": _template()})
        spec = RunSpec.model_validate({"budget": {"evaluations": BUDGET}, "lanes": 2, "strategy": "best_of_n"})
        run_id = service.begin(scored_toy_problem(), policy, spec)
        service.wait(run_id, lambda run: run.spent.evaluations > 1)
        filler = small_disk / "filler"
        with filler.open("wb", buffering=0) as file:
            while shutil.disk_usage(small_disk).free >= MIN_FREE_BYTES:
                file.write(bytes(1 << 20))
        paused = service.wait(run_id, lambda run: run.state.value == "paused")
        assert paused.reason is not None
        assert "disk is full" in paused.reason
        filler.unlink()
        stores.signals.committed(stores.runs.resume(run_id))
        service.wait_for_end(run_id)
        service.check_complete(run_id, BUDGET)
        stores.close()
