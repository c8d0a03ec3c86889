"""Take the screenshots in ``docs/pictures`` from a fresh service with real runs.

Run ``python -m tests.dashboard.pictures``. Seeds are fixed but times are not, so the pictures differ each time.
"""

from __future__ import annotations

import io
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from speciate.cli.local_service import LocalService
from speciate.cli.problems.importing import import_task
from speciate.cli.up import start_service
from speciate.client import Client
from speciate.domain.declaration import DeclarationState
from speciate.policies.bundled import bundled_policies
from speciate.problems.loader import bundled, load_problem
from speciate.settings import Settings
from tests.dashboard.conftest import chromium_path, visiting

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
_LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True)
class Shot:
    """A screenshot.

    Attributes:
        path: Path of the page, with fields of ``Content`` in braces.
        theme: ``light`` or ``dark``.
        height: In pixels.
        width: In pixels.
    """

    path: str
    theme: str
    height: int
    width: int = 1280


@dataclass(frozen=True)
class Content:
    """The sample data of the pictures.

    Attributes:
        run: Id of a run.
        best: Number of one of its candidates.
        learned: Id of a run that trained its policy.
    """

    run: str
    best: int
    learned: str


SHOTS: Final = {
    "activity-light": Shot("/", "light", 900),
    "campaign-light": Shot("/campaigns/mazes-one-budget", "light", 1150),
    "candidate-light": Shot("/runs/{run}/candidates/{best}", "light", 1100),
    "learning-light": Shot("/runs/{learned}/learning", "light", 990),
    "lineage-dark": Shot("/runs/{run}/lineage", "dark", 950),
    "run-360": Shot("/runs/{run}", "dark", 1400, 360),
    "run-light": Shot("/runs/{run}", "light", 900, 1440),
    "runs-light": Shot("/runs?tag=packing", "light", 700),
    "tournament-dark": Shot("/tournaments/maze-methods", "dark", 1100),
    "unlocks-dark": Shot("/unlocks?a=maze-vpo@1&b=maze-grpo@1", "dark", 800),
}
"""Screenshots by file name."""


def fill(client: Client) -> Content:
    """Create the sample data; one run continues when this returns."""
    policies = {policy.slug: policy for policy in bundled_policies()}
    for method in ("base", "grpo", "vpo"):
        client.policies.add(policies[f"maze-{method}"])
    client.policies.add(policies["programs-base"])
    for slug in ("circle-packing-26", "sorting-network-8"):
        client.problems.add(load_problem(bundled()[slug]))
    mazes = [f"{problem.slug}@{problem.version}" for problem in import_task(client, "maze", "test", 18).problems]
    client.tournaments.create(
        {
            "slug": "maze-methods",
            "title": "Mazes: trained by VPO, by GRPO, and not at all",
            "problems": mazes[:12],
            "entrants": [
                {"name": method, "policy": f"maze-{method}", "strategy": "best_of_n", "batch": 30}
                for method in ("grpo", "vpo", "base")
            ],
            "baseline": "grpo",
            "seeds": [1],
            "budget": {"evaluations": 30},
        }
    )
    client.campaigns.create(
        {
            "slug": "mazes-one-budget",
            "title": "Six mazes, one budget",
            "problems": mazes[12:],
            "policy": "maze-vpo",
            "evaluations": 240,
            "batch": 8,
            "slice": 8,
            "parallel": 2,
        }
    )
    arms = {"islands": "islands_map_elites", "sampling": "best_of_n"}
    runs = [
        client.runs.create(
            "circle-packing-26",
            "mutator",
            budget=300,
            seed=seed,
            strategy=strategy,
            name=f"{arm}, seed {seed}",
            tags=["packing", f"arm:{arm}"],
            note="How far comes search without a model?" if seed == 1 else "",
        )
        for seed in (1, 2)
        for arm, strategy in arms.items()
    ]
    for run in runs:
        run.wait()
    learning = client.runs.create(
        import_task(client, "programs", "test", 1).problems[0].slug,
        "programs-base",
        budget=1500,
        seed=1,
        strategy="best_of_n",
        samples_per_prompt=8,
        learning={"estimator": "vector_max_at_k"},
        name="trains its policy",
    )
    learning.wait()
    while any(client.tournaments.list(DeclarationState.RUNNING)) or any(
        client.campaigns.list(DeclarationState.RUNNING)
    ):
        time.sleep(_LOOK_EVERY_S)
    going = client.runs.create("sorting-network-8", "mutator", budget=50_000, seed=1, name="goes on")
    while going.refresh().spent.evaluations < 100:
        time.sleep(_LOOK_EVERY_S)
    return Content(str(runs[0].id), runs[0].front()[0].number, str(learning.id))


def photograph(browser: Browser, url: str, shot: Shot, content: Content) -> bytes:
    """Return a page as PNG after all its charts are drawn."""
    context = browser.new_context(
        viewport={"width": shot.width, "height": shot.height}, color_scheme=shot.theme, reduced_motion="reduce"
    )
    with context, visiting(context, url) as visitor:
        visitor.go(shot.path.format(**vars(content)))
        visitor.drawn()
        visitor.page.evaluate("scrollTo(0, 0)")
        return visitor.page.screenshot()


def _smaller(png: bytes) -> bytes:
    from PIL import Image  # in the extra `train`; a test imports this module without it

    made = io.BytesIO()
    # Median cut recolours small spots; without k-means the background colour is off.
    palette = Image.open(io.BytesIO(png)).convert("RGB").quantize(method=Image.Quantize.MAXCOVERAGE, kmeans=2)
    palette.save(made, "PNG", optimize=True)
    return made.getvalue()


def main() -> None:
    """Write all screenshots."""
    path = chromium_path()
    if path is None:
        raise SystemExit("Chromium is not installed: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory(prefix="speciate-pictures-") as home:
        Path(home).chmod(0o711)  # as root, PostgreSQL runs under another account
        with (
            LocalService(Settings(data_dir=Path(home) / "data", port=0), learns=True) as stack,
            sync_playwright() as playwright,
        ):
            start_service(stack, Console())
            with Client(stack.url) as client:
                content = fill(client)
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
            for name, shot in SHOTS.items():
                (FOLDER / f"{name}.png").write_bytes(_smaller(photograph(browser, stack.url, shot, content)))
            browser.close()


if __name__ == "__main__":
    main()
