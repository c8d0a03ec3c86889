"""Problems from a program and an evaluator, without a definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.compat.conversion import Converted
from speciate.compat.inline import inline_problem, same_inputs
from speciate.compat.measuring import Score
from speciate.domain.candidate import Evaluation
from speciate.domain.errors import InvalidInputError, NotFoundError, SpeciateError
from speciate.domain.problem import Problem, ProblemKind
from speciate.evolution.task import Task, _is_of
from speciate.problems.loader import known_problems, load_problem
from speciate.problems.writing import problem_texts, write
from speciate.runs.evaluation import reject_out_of_scale
from speciate.runs.silent_failure import scores_nothing
from tests.unit.compat.corpus import CORPUS, Entry
from tests.unit.compat.directories import OPENEVOLVE, made

Inline = Callable[..., Converted]
CALLS = "import runpy\ndef evaluate(path):\n    return runpy.run_path(path)['run']()\n"
PROGRAM = "# EVOLVE-BLOCK-START\ndef run():\n    return 3\n# EVOLVE-BLOCK-END\n"


@pytest.fixture
def inline(strongest: SandboxEvaluator) -> Inline:
    def score(problem: Problem, seeds: Sequence[int]) -> list[Evaluation]:
        return strongest.evaluate(problem, [problem.seed_program] * len(seeds), seeds=list(seeds))

    def make(*paths: object, **options: object) -> Converted:
        return inline_problem(*paths, score=score, **options)  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize("entry", CORPUS.values(), ids=CORPUS)
def test_a_seed_scores_as_outside(inline: Inline, strongest: SandboxEvaluator, tmp_path: Path, entry: Entry) -> None:
    if entry.writes and strongest.tier != "A":
        pytest.skip("tier B lets nothing be written")
    folder = made(tmp_path / "theirs", entry.files)
    outside = entry.scored_outside(folder)
    paths = (folder,) if entry.folder else (folder / entry.program, folder / entry.evaluator)
    found = inline(*paths)
    assert {name: found.seed[name] for name in outside} == pytest.approx(outside, rel=1e-12)
    assert [o.directed for o in found.problem.space.selected] == list(entry.objectives)
    (scored,) = strongest.evaluate(found.problem, [found.problem.seed_program], seeds=[5])
    assert scored.rewards == tuple(found.seed[name] for name in found.problem.space.names)
    write(problem_texts(found.problem), tmp_path / "ours")
    assert load_problem(tmp_path / "ours") == found.problem


def test_directions_targets_and_names_are_the_users(inline: Inline, tmp_path: Path) -> None:
    evaluator = "def evaluate(path):\n    return {'combined_score': 0.5, 'loss': 2.0, 'gain': 3.0}\n"
    folder = made(tmp_path / "theirs", {"a.py": PROGRAM, "judge.py": evaluator})
    found = inline(
        folder / "a.py",
        folder / "judge.py",
        minimize=["loss"],
        maximize=["gain"],
        targets=["loss <= 0.1", "gain >= 4"],
        name="my-problem",
        wall_s=7.0,
    )
    problem = found.problem
    assert (problem.slug, problem.limits.wall_s, problem.kind) == ("my-problem", 7.0, ProblemKind.IN_PROCESS)
    assert [o.directed for o in problem.objectives] == ["gain ↑", "loss ↓", "combined_score"]
    assert {target.name: (target.rule, target.unlock) for target in problem.targets} == {
        "loss_0_1": ("loss <= 0.1", False),
        "gain_4": ("gain >= 4", False),
        "all_targets": ("(loss <= 0.1) and (gain >= 4)", True),
    }
    assert problem.targets_met((4.0, 0.05, 0.0)) == 0b111


def test_a_program_may_lie_elsewhere_and_a_configuration_too(inline: Inline, tmp_path: Path) -> None:
    folder = made(tmp_path / "theirs", OPENEVOLVE)
    (tmp_path / "mine.py").write_text(OPENEVOLVE["initial_program.py"].replace("0.5", "0.75"))
    unused = "llm: {models: [], max_tokens: 9}\ndatabase: {num_islands: 3}\nlog_level: INFO\ncheckpoint: null\n"
    (tmp_path / "other.yaml").write_text(f"evaluator: {{timeout: 9, cascade_evaluation: true}}\n{unused}")
    found = inline(tmp_path / "mine.py", folder / "evaluator.py", config=tmp_path / "other.yaml")
    assert found.problem.limits.wall_s == 9
    assert "other.yaml: not used: llm.models, database.num_islands, log_level" in found.notes
    assert "0.75" in found.problem.seed_program
    config = folder / "config.yaml"
    note = f"of config.yaml, its system_message, evaluator and feature_dimensions are used; pass --config {config} for"
    assert any(each.startswith(note) for each in inline(folder).notes)
    named = inline(None, config=config)
    assert named.problem.limits.wall_s == 30
    assert not any("pass --config" in each for each in named.notes)


def test_a_program_is_named_from_the_working_directory(
    inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "bench", {"mine.py": PROGRAM.replace("1", "2"), "judge.py": CALLS})
    (tmp_path / "mine.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    assert inline("mine.py", "bench/judge.py").problem.seed_program == PROGRAM


def test_of_a_users_folder_only_what_the_evaluator_names_is_taken(inline: Inline, tmp_path: Path) -> None:
    folder = made(
        tmp_path / "home",
        {
            "mine.py": PROGRAM,
            "judge.py": f"import helper\nimport pack.core\nfrom pathlib import Path\nPath('data').exists()\n{CALLS}",
            "helper.py": "import deeper\n",
            "deeper.py": "",
            "data/table.csv": "1",
            "letters.txt": "private",
            "pack/core.py": "import beside\n",
            "beside.py": "",
            "notes/diary.txt": "private",
            "wanted.txt": "1",
            **{f"photo{n}.txt": "" for n in range(1100)},
        },
    )
    problem = inline(folder / "mine.py", folder / "judge.py", include=["wanted.txt"]).problem
    taken = {"judge.py", "helper.py", "deeper.py", "pack/core.py", "beside.py", "data/table.csv", "wanted.txt"}
    assert taken <= problem.data_files.keys()
    assert not {name for name in problem.data_files if name.startswith(("letters", "notes", "photo"))}


def test_declared_and_bundled_problems_are_taken_as_they_are(inline: Inline, tmp_path: Path) -> None:
    assert inline("circle-packing-26").problem.slug == "circle-packing-26"
    write(problem_texts(inline("sorting-network-8").problem), tmp_path / "mine")
    assert inline(tmp_path / "mine").problem.slug == "sorting-network-8"
    with pytest.raises(InvalidInputError, match=r"mine declares its objectives.*problem\.toml"):
        inline(tmp_path / "mine", targets=["depth <= 3"])


@pytest.mark.parametrize(
    "returned",
    [
        "{'combined_score': 3, 'info': 'a text', 'ok': True, 'error': None}",
        "{'combined_score': np.float32(3), 'ratio': float('nan'), 'p-value': 0.5, 'sizes': [1, 2]}",
        "np.int64(3)",
    ],
)
def test_what_scores_the_seed_program_scores_candidates(
    inline: Inline, strongest: SandboxEvaluator, tmp_path: Path, returned: str
) -> None:
    evaluator = f"import numpy as np\nasync def evaluate(candidate, context):\n    return {returned}\n"
    folder = made(tmp_path / "p", {"initial_program.py": PROGRAM, "evaluator.py": evaluator})
    found = inline(folder)
    (scored,) = strongest.evaluate(found.problem, [PROGRAM], seeds=[0])
    assert (scored.failure, scored.rewards) == (None, tuple(found.seed[name] for name in found.problem.space.names))


def test_candidates_do_not_see_what_an_evaluator_of_two_arguments_reads(
    inline: Inline, strongest: SandboxEvaluator, tmp_path: Path
) -> None:
    evaluator = (
        "from pathlib import Path\n"
        "def evaluate(candidate, context):  # with secret.npy and hidden\n"
        "    answers = [path for path in Path(__file__).parent.rglob('*') if path.suffix in ('.npy', '.json')]\n"
        "    seen = candidate.call('run').unwrap()\n"
        "    return sum(len(each.read_bytes()) for each in answers) + (100 if seen == 3 else len(seen))\n"
    )
    beside = {f"hidden/{n}.json": "[1]" for n in range(70)}
    folder = made(tmp_path / "p", {"initial_program.py": PROGRAM, "evaluator.py": evaluator, **beside})
    (folder / "secret.npy").write_bytes(b"\x93NUMPY\0\xff")
    found = inline(folder)
    assert found.seed == {"score": 8 + 70 * 3 + 100}
    thief = "import os\ndef run():\n    return [n for _, _, names in os.walk('data') for n in names]\n"
    (scored,) = strongest.evaluate(found.problem, [thief], seeds=[0])
    assert scored.rewards == (8 + 70 * 3,)
    write(problem_texts(found.problem), tmp_path / "ours")
    assert (tmp_path / "ours/secret.npy").read_bytes() == b"\x93NUMPY\0\xff"
    assert load_problem(tmp_path / "ours") == found.problem


@pytest.mark.parametrize(
    "line", ["CMD = ['solver', '--output-file', 'x']", "# compared with --results_dir of older runs"]
)
def test_a_word_does_not_decide_about_the_contract(inline: Inline, tmp_path: Path, line: str) -> None:
    evaluator = f"{line}\ndef evaluate(path):\n    return {{'combined_score': 1.0}}\n"
    assert inline(made(tmp_path / "p", {"initial_program.py": PROGRAM, "evaluator.py": evaluator})).seed


def test_an_evaluator_may_import_its_function(inline: Inline, tmp_path: Path) -> None:
    files = {"initial_program.py": PROGRAM, "evaluator.py": "from mine import *\n"}
    files["mine.py"] = "def evaluate(path):\n    return {'combined_score': 1.0}\n"
    assert inline(made(tmp_path / "p", files)).seed == {"combined_score": 1.0}


@pytest.mark.parametrize(
    ("program", "evaluator", "message"),
    [
        (PROGRAM, "def evaluate(path:\n", r"judge\.py:1 does not compile as Python.*Evaluators are written in Python"),
        (PROGRAM, "import os\n\ndef score(path):\n    return 1\n", r"judge\.py defines score: expected 'evaluate'"),
        (
            PROGRAM,
            "def evaluate(path):\n    print('score 3')\n",
            r"^judge\.py: TypeError: the evaluator returned NoneType.*what it prints are no score",
        ),
        (
            PROGRAM,
            "def evaluate(candidate, context):\n    print(3)\n",
            "returned NoneType.*what it prints are no score",
        ),
        (PROGRAM, "def evaluate(candidate, context):\n    while True: pass\n", "evaluator_wall_limit"),
        (
            PROGRAM,
            "def evaluate(candidate, context):\n    return candidate.call('walk').unwrap()\n",
            r"judge\.py uses walk, which initial\.py does not define",
        ),
        (PROGRAM, "def evaluate(path):\n    return {}\n", "measured no number"),
        (
            PROGRAM,
            "import os\ndef evaluate(path):\n    return len(os.environ['MY_API_KEY'])\n",
            r"KeyError: 'MY_API_KEY'.*passes no environment variables.*A Python function",
        ),
        (PROGRAM, "def evaluate(path):\n    raise MemoryError\n", "MemoryError\n.*--memory-mb"),
        (PROGRAM, "def evaluate(path):\n    return {'a': 1, 'b': 2}\n", "returned a, b, and no combined_score"),
        (
            PROGRAM,
            "def evaluate(path):\n    return {'combined_score': float('nan')}\n",
            "no finite number, combined_score is nan",
        ),
        (
            PROGRAM,
            "def evaluate(path):\n    return {'combined_score': '1', 'n': 2}\n",
            "combined_score is 1: expected a finite number",
        ),
        (PROGRAM, "def evaluate(path):\n    while True: pass\n", r"timeout \((?:wall|cpu)_limit\).*--wall-s"),
        (
            PROGRAM,
            "import jaxxy\ndef evaluate(path):\n    return 1\n",
            r"^judge\.py, line 1: ModuleNot.*of jaxxy in req",
        ),
        (PROGRAM.replace("3", "1 / 0"), CALLS, r"^initial\.py, line 3: ZeroDivisionError: division by zero\n"),
        (
            "x = 1\n",
            CALLS := "import runpy\ndef evaluate(path):\n    return runpy.run_path(path)['run']()\n",
            r"judge\.py uses run, which initial",
        ),
        ("def run(:\n", CALLS, r"initial\.py:1.*does not compile as Python"),
        ("", CALLS, "is empty: nothing to score"),
        ("# EVOLVE-BLOCK-START\n", CALLS, "EVOLVE-BLOCK-START without"),
    ],
)
def test_what_does_not_work_is_named_with_its_place_and_remedy(
    inline: Inline, tmp_path: Path, program: str, evaluator: str, message: str
) -> None:
    folder = made(tmp_path / "p", {"initial.py": program, "judge.py": evaluator})
    with pytest.raises(SpeciateError, match=f"(?s){message}"):
        inline(folder / "initial.py", folder / "judge.py", wall_s=2.0)


def test_what_is_not_there_is_named(inline: Inline, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(PROGRAM)
    for paths, message in {
        (tmp_path / "a.py", tmp_path / "no.py"): r"the evaluator .*no\.py is not there",
        (tmp_path / "a.py", tmp_path): "is a directory: expected a file",
        (tmp_path,): r"holds no problem: expected problem\.toml, or initial\.py and evaluate\.py",
        ("circle-packing-62",): "Did you mean 'circle-packing-32'",
    }.items():
        with pytest.raises(NotFoundError, match=message):
            inline(*paths)
    with pytest.raises(InvalidInputError, match=r"a\.py is a program without an evaluator"):
        inline(tmp_path / "a.py")


def test_a_program_without_marks_may_change_everywhere(inline: Inline, tmp_path: Path) -> None:
    evaluator = "'''Count.'''\ndef evaluate(path):\n    return 1.5\n"
    folder = made(tmp_path / "p", {"initial.py": "def run():\n    return 3\n", "judge.py": evaluator})
    notes = inline(folder / "initial.py", folder / "judge.py").notes
    assert notes == ("initial.py has no EVOLVE-BLOCK markers: the whole program may change",)


@pytest.mark.parametrize(("wall_s", "evaluations", "seed"), [(0.5, 3, 7 / 3), (3.0, 2, 1.25), (31.0, 1, 0.5)])
def test_a_slow_evaluator_is_tried_for_noise_less_often(
    tmp_path: Path, wall_s: float, evaluations: int, seed: float
) -> None:
    counter = count(1)

    def score(problem: Problem, seeds: Sequence[int]) -> list[Evaluation]:
        texts = [{"other metrics": f"score = {next(counter) ** 2 / 2}"} for _ in seeds]
        return [Evaluation(rewards=(0.0,), artifacts=each, tier="A", wall_s=wall_s) for each in texts]

    folder = made(tmp_path / "p", {"initial.py": PROGRAM, "judge.py": CALLS})
    converted = inline_problem(folder / "initial.py", folder / "judge.py", score=score)
    assert next(counter) == evaluations + 1
    assert converted.seed == {"score": pytest.approx(seed)}
    assert converted.problem.stochastic == (evaluations > 1)
    assert any("not tried" in note for note in converted.notes) == (evaluations == 1)


@pytest.mark.parametrize("other", ["'size': 3", "'valid': True"])
def test_a_feature_or_a_flag_makes_no_other_problem(inline: Inline, tmp_path: Path, other: str) -> None:
    evaluator = f"def evaluate(path):\n    return {{'speed': 2.0, 'gain': 1.0, {other}}}\n"
    config = "database: {feature_dimensions: [size]}\n"
    files = {"initial_program.py": PROGRAM, "evaluator.py": evaluator, "config.yaml": config}
    folder = made(tmp_path / "p", files)
    begun = inline(folder)
    assert [each.name for each in begun.problem.space.selected] == ["speed", "gain"]
    assert _is_of(Task(program=folder), begun.problem, begun.seed)
    assert _is_of(Task(program=folder), begun.problem, {})
    assert not _is_of(Task(program=folder, problem={"maximize": ["gain"]}), begun.problem, begun.seed)


def test_noise_makes_no_other_problem(inline: Inline, tmp_path: Path) -> None:
    noisy = (
        "import os\nN = hash(os.urandom(8)) % 10000 / 1e4\ndef evaluate(path):\n    return {'score': 2 + N, 'b': 1}\n"
    )
    folder = made(tmp_path / "p", {"initial.py": PROGRAM, "judge.py": noisy})
    paths = (folder / "initial.py", folder / "judge.py")
    assert not inline(*paths, maximize=["b"]).problem.stochastic  # a record decides nothing
    several = inline(*paths, maximize=["b", "score"])
    assert f"the target, as none is named: {several.problem.targets[0].rule}" in several.notes
    inline = partial(inline, maximize=["score"])
    first, second = inline(*paths).problem, inline(*paths).problem
    assert first.stochastic
    assert first != second
    assert same_inputs(first, second)
    assert not same_inputs(first, inline(*paths, targets=["score >= 9"]).problem)
    assert not same_inputs(first, inline(*paths, maximize=[], minimize=["score"]).problem)
    (folder / "judge.py").write_text(noisy.replace("1e4", "1e5"))
    assert not same_inputs(first, inline(*paths).problem)
    assert not same_inputs(*(load_problem(known_problems()[name]) for name in ("hexagons-11", "hexagons-12")))


def test_many_metrics_are_all_read(inline: Inline, tmp_path: Path) -> None:
    many = "{f'instance_{i:03d}_accuracy': 5 / 6 for i in range(120)}"
    evaluator = f"def evaluate(path):\n    return {{'combined_score': 0.5, **{many}}}\n"
    converted = inline(made(tmp_path / "p", {"initial_program.py": PROGRAM, "evaluator.py": evaluator}))
    assert (len(converted.seed), converted.seed["combined_score"]) == (121, 0.5)


@pytest.mark.parametrize(
    "noted", ["[context.note(f'case {n}', 'x') for n in range(40)]", "context.note('log', 'x' * 70_000)"]
)
def test_notes_crowd_out_no_metric(inline: Inline, tmp_path: Path, noted: str) -> None:
    evaluator = f"def evaluate(candidate, context):\n    {noted}\n    return {{'combined_score': 0.5, 'runs': 2}}\n"
    folder = made(tmp_path / "p", {"initial_program.py": PROGRAM, "evaluator.py": evaluator})
    assert inline(folder).seed == {"combined_score": 0.5, "runs": 2}


def test_a_configuration_counts_for_an_evaluator_of_two_arguments(inline: Inline, tmp_path: Path) -> None:
    evaluator = "def evaluate(candidate, context):\n    return 1.0\n"
    config = "prompt: {system_message: Sort.}\nevaluator: {timeout: 90}\nlog_level: INFO\n"
    folder = made(tmp_path / "p", {"a.py": PROGRAM, "judge.py": evaluator, "c.yaml": config})
    converted = inline(folder / "a.py", folder / "judge.py", config=folder / "c.yaml")
    assert (converted.problem.description, converted.problem.limits.wall_s) == ("Sort.", 90)
    assert "c.yaml: not used: log_level" in converted.notes


def _scored(*values: float, wall_s: float) -> Score:
    scores = iter(values)

    def score(_: Problem, seeds: Sequence[int]) -> list[Evaluation]:
        notes = [{"other metrics": f"score = {next(scores)}"} for _ in seeds]
        return [Evaluation(rewards=(0.0,), artifacts=note, tier="A", wall_s=wall_s) for note in notes]

    return score


def test_a_seed_program_that_scores_next_to_nothing_leaves_room_for_better_ones(tmp_path: Path) -> None:
    folder = made(tmp_path / "p", {"initial.py": PROGRAM, "judge.py": CALLS})
    score = _scored(5e-131, wall_s=40.0)
    problem = inline_problem(folder / "initial.py", folder / "judge.py", score=score).problem
    assert reject_out_of_scale(problem, {1: Evaluation(rewards=(0.9,))})[1].failure is None
    score = _scored(-5e-131, wall_s=40.0)
    problem = inline_problem(folder / "initial.py", folder / "judge.py", score=score).problem
    assert not scores_nothing(problem, Evaluation(rewards=(-5e-131,)))


def test_a_seed_program_whose_noise_reaches_the_worst_value_may_have_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "p", {"initial.py": PROGRAM, "judge.py": CALLS})
    score = _scored(-1.2, 0.9, 0.0, wall_s=0.5)
    problem = inline_problem(folder / "initial.py", folder / "judge.py", score=score, anyway=True).problem
    assert problem.stochastic
    assert problem.worst_seed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- a list of a web server\n", "is not a table of settings"),
        ("server: {port: 80}\n", "has no setting of OpenEvolve that is used"),
        ("database: sqlite:///x.db\n", "has no setting of OpenEvolve that is used"),
        ("{{ template }}:\n  - [", "is not valid YAML"),
    ],
)
def test_a_configuration_of_something_else_is_left_out(inline: Inline, tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "evaluator.py").write_text(CALLS)
    (tmp_path / "config.yaml").write_text(text)
    converted = inline(tmp_path / "program.py", tmp_path / "evaluator.py")
    assert converted.seed == {"score": 3.0}
    assert any(f"config.yaml is not used: it {reason}" in remark for remark in converted.remarks)
    assert not any("pass --config" in remark for remark in converted.remarks)
    (tmp_path / "config.yaml").write_text("evaluator: {timeout: 0}\n")
    with pytest.raises(InvalidInputError, match=r"config\.yaml.*timeout"):
        inline(tmp_path / "program.py", tmp_path / "evaluator.py")
