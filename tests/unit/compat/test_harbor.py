"""Tasks of Harbor: what a directory says, and a task that is imported and scored in its image."""

from __future__ import annotations

from pathlib import Path

import pytest

from speciate.compat import USUAL, read_directory
from speciate.compat.harbor import HarborDraft, read_harbor, require_image
from speciate.domain.errors import InvalidInputError, NotFoundError
from speciate.problems.loader import load_problem
from tests.support.images import engine_or_skip, image

CONFIG = """
version = "1.0"
[verifier]
timeout_sec = 20
env = { WORD = "it's", KEY = "${SECRET}" }
[agent]
timeout_sec = 40.0
[environment]
memory = "1.5G"
"""
TEST = """
grep -q hello out.txt && words=1
printf '{\\n  "greeted": %s,\\n  "length": 0.5\\n}\\n' "${words:-0}" > /logs/verifier/reward.json
echo "$WORD"
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    files = {
        "task.toml": CONFIG,
        "instruction.md": "Greet.",
        "tests/test.sh": TEST,
        "environment/Dockerfile": "FROM debian\nWORKDIR /app/\n",
        "solution/solve.sh": "echo hello > out.txt\n",
    }
    for name, text in files.items():
        path = tmp_path / "Greet me" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "Greet me"


def test_the_directory_is_read(task: Path) -> None:
    draft = read_harbor(task, USUAL)
    assert (draft.slug, draft.wall_s, draft.memory_bytes) == ("harbor-greet-me", 60.0, 3 << 29)
    assert (draft.folder, draft.variables) == ("/app", (("WORD", "it's"),))
    assert [*draft.files] == ["tests/test.sh"]
    assert any("KEY is left out" in remark for remark in draft.remarks)
    assert any("no network" in remark for remark in draft.remarks)


def test_an_image_needs_a_digest(task: Path) -> None:
    with pytest.raises(InvalidInputError, match="names no image") as raised:
        require_image(read_harbor(task, USUAL), task)
    assert "podman build -t localhost/harbor-greet-me" in raised.value.remedy
    (task / "task.toml").write_text(f"{CONFIG}docker_image = 'org/greet:v1'\n")
    with pytest.raises(InvalidInputError, match="names no digest"):
        require_image(read_harbor(task, USUAL), task)


def test_what_is_no_task_is_refused(task: Path, tmp_path: Path) -> None:
    (task / "task.toml").write_text("a = [")
    with pytest.raises(InvalidInputError, match=r"task\.toml.*is not TOML"):
        read_harbor(task, USUAL)
    (task / "tests" / "test.sh").unlink()
    (task / "task.toml").write_text("environment = 3")
    with pytest.raises(NotFoundError, match=r"test\.sh"):
        read_harbor(task, USUAL)
    with pytest.raises(NotFoundError):
        read_harbor(tmp_path / "none", USUAL)


def test_a_task_is_scored_in_its_image(task: Path, tmp_path: Path) -> None:
    engine = engine_or_skip()
    if engine.name != "podman":
        pytest.skip("tasks write to folders of the image, which only podman copies")
    from dataclasses import replace

    from speciate.cli.problems.check import evaluate_seed
    from speciate.compat.conversion import convert
    from speciate.problems.writing import write

    draft = read_directory("harbor", task)
    assert isinstance(draft, HarborDraft)
    into = tmp_path / "problem"
    converted = convert(replace(draft, image=image(engine)), evaluate_seed, anyway=True)
    assert converted.seed == {"greeted": 0.0, "length": 0.5}
    write(converted.files, into)
    problem = load_problem(into)
    assert problem.forgeable
    solution = "echo hello > out.txt; sleep 100 &"  # what it leaves running ends before the test
    (scored,) = evaluate_seed(problem.model_copy(update={"seed_program": solution}), [0])
    assert scored.rewards == (1.0, 0.5)
    assert "it's" in scored.artifacts["stderr"]
