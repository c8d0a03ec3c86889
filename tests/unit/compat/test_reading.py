"""Reading and refusing directories of other systems, without running anything."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest

from speciate.compat import Choice, naming, read_directory
from speciate.compat.draft import DraftRewards, problem_of
from speciate.compat.rewards import after_trial, directions_of, noise_of, rewards_of
from speciate.domain.errors import InvalidInputError, NotFoundError
from speciate.domain.objective import Direction
from speciate.domain.target import Target
from tests.unit.compat.directories import OPENEVOLVE, SHINKA, made

EVALUATOR = "def evaluate(path): ...\n"
read_openevolve, read_shinka = partial(read_directory, "openevolve"), partial(read_directory, "shinka")


@pytest.fixture
def line(tmp_path: Path) -> Path:
    return made(tmp_path / "A line", OPENEVOLVE)


def test_the_configuration_makes_limits_cascade_and_description(line: Path) -> None:
    draft = read_openevolve(line)
    assert (draft.slug, draft.wall_s) == ("openevolve-a-line", 30)
    assert draft.options == {
        "evaluator": "evaluator.py",
        "thresholds": [0.5, 0.75],
        "features": ["complexity", "diversity"],
    }
    problem = draft.trial()
    assert problem.description.strip() == 'Guess "the line", with \\ and """ in mind.'
    assert (problem.limits.wall_s, problem.seed_program) == (30, OPENEVOLVE["initial_program.py"])
    assert set(problem.data_files) == {*OPENEVOLVE, "speciate_adapter.py"} - {"config.yaml"}
    assert "SOME_KEY" not in str(problem.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("system_message: Fit.\n", "Fit."),
        ("llm: {system_message: Fit.}\n", "Fit."),
        ("prompt: {system_message: system_message}\n", "Guesses a line."),
        ("prompt:\nevaluator:\n  timeout:\n", "Guesses a line."),
    ],
)
def test_the_message_stands_in_several_places_or_nowhere(tmp_path: Path, config: str, message: str) -> None:
    draft = read_openevolve(made(tmp_path / "p", OPENEVOLVE, config_yaml=config))
    assert draft.description == message


@pytest.mark.parametrize(
    ("evaluator", "program", "task"),
    [
        (('"""Find primes."""\ndef evaluate(path):\n    """f(n) returns n primes.\n\n    Args:\n        path: It.\n'
         '\n    Returns: a dict.\n    """\n    held = """out"""\n'),
         '"""Slow."""\n# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\n',
         "Find primes.\n\nf(n) returns n primes.\n\nReturns: a dict."),
        (EVALUATOR, "#!/bin/python\n# Find\n#  primes.\n\n# EVOLVE-BLOCK-START\n# EVOLVE-BLOCK-END\n",
         "Find\n primes."),
        (EVALUATOR, "/* Find\n * primes. */\n// EVOLVE-BLOCK-START\n// EVOLVE-BLOCK-END\n", "Find\nprimes."),
        (EVALUATOR, "# EVOLVE-BLOCK-START\n'''Mine.'''\n# EVOLVE-BLOCK-END\n", ""),
        (EVALUATOR, "'''The first idea.'''\n", ""),
    ],
)  # fmt: skip
def test_documentation_describes_the_task(tmp_path: Path, evaluator: str, program: str, task: str) -> None:
    files = {**OPENEVOLVE, "evaluator.py": evaluator, "initial_program.py": program}
    draft = read_openevolve(made(tmp_path / "p", files, config_yaml=""))
    assert draft.description == task
    assert (naming.UNPROMPTED in draft.remarks) == (not task)


def test_without_a_cascade_or_a_configuration(tmp_path: Path) -> None:
    whole = made(tmp_path / "whole", OPENEVOLVE, config_yaml="evaluator: {cascade_evaluation: false}\n")
    assert "thresholds" not in read_openevolve(whole).options
    (whole / "config.yaml").unlink()
    draft = read_openevolve(whole)
    assert (draft.wall_s, draft.remarks[0]) == (300, "no config.yaml found: the limits are the other system's defaults")
    (whole / "config_phase_1.yaml").write_text("evaluator: {timeout: 2.e+5}\n")
    draft = read_openevolve(whole)
    assert draft.wall_s == 86_400
    assert draft.remarks[:2] == (
        "no config.yaml found: the settings are those of config_phase_1.yaml",
        "config_phase_1.yaml allows 200000 seconds: reduced to 86400, the longest possible",
    )


def test_what_a_launcher_of_shinka_says_is_read_and_not_run(tmp_path: Path) -> None:
    draft = read_shinka(made(tmp_path / "tours", SHINKA))
    assert (draft.description, draft.constraints) == ("Walk a short tour.", ("correct",))
    assert "run_evo.py" not in draft.files
    called = made(tmp_path / "b", SHINKA, run_evo_py="EvolutionConfig(task_sys_msg='Walk.')\n")
    assert read_shinka(called).description == "Walk."
    for text in ("def (", "x = 1", "#" * (1 << 19)):
        (called / "run_evo.py").write_text(text)
        assert read_shinka(called).description == ""


def test_files_about_the_problem_and_links_are_left_out(line: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (line / "secret.txt").symlink_to(tmp_path / "secret.txt")
    (line / "inside.txt").symlink_to("wanted.txt")
    (line / "outside").symlink_to(tmp_path)
    (line / "array.npy").write_bytes(b"\xff\xfe")
    (line / "two words.txt").write_text("x")
    (line / "README.md").write_text("x")
    (line / "config_2.yaml").write_text("api_key: x")
    (line / ".env").write_text("KEY=x")
    (line / "__pycache__").mkdir()
    (line / "deep" / "er").mkdir(parents=True)
    (line / "deep" / "er" / "table.csv").write_text("1,2")
    (line / "deep" / "config.yaml").write_text("api_key: x")
    (line / "deep" / "secret.txt").symlink_to(tmp_path / "secret.txt")
    os.mkfifo(line / "pipe")
    for name, size in (("large.csv", 1 << 30), ("some.bin", 7 << 20)):
        with (line / name).open("wb") as file:
            file.truncate(size)
    draft = read_openevolve(line)
    assert {name: why.split(":")[0] for name, why in draft.left_out.items()} == {
        "README.md": "describes the problem but is not part of it",
        "config_2.yaml": "configures another system and may hold keys",
        "deep/config.yaml": "configures another system and may hold keys",
        "deep/secret.txt": "is a link",
        "inside.txt": "is a link",
        "large.csv": "is over 16777216 bytes",
        "outside": "is a link",
        "pipe": "is not a regular file",
        "secret.txt": "is a link",
        "some.bin": "exceeds 8 MiB together with the other files",
        "two words.txt": "has a name that is not allowed for files of a problem",
    }
    assert not any("secret" in text or "KEY" in text for text in draft.files.values())
    assert draft.trial().data_files["deep/er/table.csv"] == "1,2"
    assert draft.files["array.npy"] == "data:;base64,//4="


def test_published_solutions_are_hidden_unless_the_evaluator_names_them(line: Path) -> None:
    (line / "best_program.py").write_text("def run(count): ...")
    (line / "outputs" / "best").mkdir(parents=True)
    (line / "outputs" / "best" / "program.py").write_text("x")
    (line / "best_known.json").write_text("[1]")
    (line / "evaluator.py").write_text("KNOWN = 'best_known.json'\n" + OPENEVOLVE["evaluator.py"])
    draft = read_openevolve(line)
    why = "may contain published solutions, and the evaluator does not name it"
    assert draft.left_out == {"best_program.py": why, "outputs": why}
    assert "best_known.json" in draft.files


@pytest.mark.parametrize(
    ("path", "slug"),
    [
        ("heilbronn/13", "openevolve-heilbronn-13"),
        ("Hexagon Packing/11/2", "openevolve-hexagon-packing-11-2"),
        ("sorting", "openevolve-sorting"),
    ],
)
def test_slugs_name_the_system_and_what_a_number_stands_for(tmp_path: Path, path: str, slug: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    assert read_openevolve(made(tmp_path / path, OPENEVOLVE)).slug == slug


def test_programs_in_other_languages_keep_their_suffix(tmp_path: Path) -> None:
    files = {name: text for name, text in SHINKA.items() if name != "initial.py"} | {"initial.f90": "end\n"}
    problem = read_shinka(made(tmp_path / "heat", files)).trial()
    assert problem.language is not None
    assert (problem.language.name, problem.main_file, problem.is_python) == ("Fortran", "candidate.f90", False)
    odd = {name: text for name, text in SHINKA.items() if name != "initial.py"} | {"initial.exe": "x"}
    with pytest.raises(InvalidInputError, match=r"initial\.exe: is in no known language: expected .py or one of .c, "):
        read_shinka(made(tmp_path / "odd", odd))
    folder = made(tmp_path / "many", {"evaluate.py": "x"})
    (folder / "initial").mkdir()
    with pytest.raises(InvalidInputError, match=r"initial: is a folder: join its files into initial\.txt"):
        read_shinka(folder)


MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 20))


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (MERGES, "has 38 aliases"),
        ("a: " + "[" * 10_000, "not valid YAML"),
        ("a: !!python/object/apply:os.system [ls]\n", "not valid YAML in line 1"),
        ("a: [1\nb: 2\n", "not valid YAML in line 2"),
        ("a: 1" + "0" * 5000, "not valid YAML"),
        ("0x" + "f" * 5000 + ": 1", "not valid YAML"),
        ("a: 2020-99-99\n", "not valid YAML"),
        ("- a\n", "not a table"),
        ("a: '" + "x" * (1 << 18) + "'", "longer than"),
        ("evaluator: {timeout: soon}\n", "evaluator.timeout"),
        ("evaluator: {timeout: 1.e+999}\n", "evaluator.timeout"),
        ("evaluator: {cascade_thresholds: [.nan]}\n", "evaluator.cascade_thresholds.0"),
        ("prompt: 3\n", "prompt"),
        ('prompt: {system_message: "\\ud800"}\n', "system_message"),
        ("evaluator: {timeout: 0}\n", "evaluator.timeout"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(tmp_path: Path, config: str, named: str) -> None:
    folder = made(tmp_path / "p", OPENEVOLVE, config_yaml=config)
    with pytest.raises(InvalidInputError) as refused:
        read_openevolve(folder)
    assert f"{folder} cannot be imported: config.yaml" in str(refused.value)
    assert named in str(refused.value)


@pytest.mark.parametrize("name", ["evaluator.py", "initial_program.py", "config.yaml"])
def test_a_file_that_is_needed_is_a_plain_one(line: Path, name: str) -> None:
    path = line / name
    path.rename(line / "elsewhere.py")
    path.symlink_to("elsewhere.py")
    with pytest.raises(InvalidInputError, match=f"{name}: is a link"):
        read_openevolve(line)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InvalidInputError, match=f"{name}: is not a regular file"):
        read_openevolve(line)
    path.unlink()
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(InvalidInputError, match=f"{name}: is over"):
        read_openevolve(line)


def test_a_directory_without_what_it_needs(line: Path, tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", line / "wanted.txt", tmp_path):
        with pytest.raises(NotFoundError, match=r"Name a directory with initial_program.py and an evaluator"):
            read_openevolve(folder)
    (line / "evaluator.py").rename(line / "judge.py")
    with pytest.raises(NotFoundError, match=r"contains no evaluator.py. Name a directory with initial_program.py and"):
        read_openevolve(line)
    (line / "judge.py").rename(line / "evaluator.py")
    (line / "candidate.py").write_text("")
    with pytest.raises(InvalidInputError, match=r"candidate.py: has a name .* rename it"):
        read_openevolve(line)


def test_a_directory_of_anything_is_not_read(line: Path) -> None:
    for number in range(1000):
        (line / f"{number}.txt").touch()
    with pytest.raises(InvalidInputError, match="more than 1000 files"):
        read_openevolve(line)


def test_marks_and_programs_are_looked_at_before_anything_runs(tmp_path: Path) -> None:
    folder = made(tmp_path / "p", OPENEVOLVE, initial_program_py="# EVOLVE-BLOCK-START\nx = 1\n")
    with pytest.raises(InvalidInputError, match=r"initial_program.py:1.*EVOLVE-BLOCK-START without"):
        read_openevolve(folder).trial()


def test_an_evaluator_that_starts_processes_is_remarked_upon(tmp_path: Path) -> None:
    folder = made(tmp_path / "p", OPENEVOLVE, evaluator_py="import subprocess\n")
    assert read_openevolve(folder).remarks == (
        "evaluator.py uses subprocess: only tier A of the sandbox lets evaluators start processes",
    )


def test_parts_of_shinka_that_are_not_provided_are_named(tmp_path: Path) -> None:
    needs = "from shinka.core import run_shinka_eval\nfrom shinka.llm import LLMClient\n"
    draft = read_shinka(made(tmp_path / "judged", SHINKA, evaluate_py=needs))
    assert draft.remarks == ("evaluate.py imports shinka.llm of ShinkaEvolve, which is not provided",)


MEASURED = {"combined_score": -3.0, "loss": 1e308, "runs": 1.0, "correct": 1.0}


def test_rewards_are_what_the_user_names_then_constraints_then_records(tmp_path: Path) -> None:
    tours = read_shinka(made(tmp_path / "tours", SHINKA))
    rewards = rewards_of(tours, directions_of(["runs"], ["loss"]), MEASURED)
    assert [(o.name, o.arrow, o.role.value) for o in rewards] == [
        ("runs", "↑", "objective"),
        ("loss", "↓", "objective"),
        ("correct", "↑", "constraint"),
        ("combined_score", "", "record"),
    ]
    assert [o.range for o in rewards] == [(0, 2), (0, sys.float_info.max / 2), (0, 1), (-6, 0)]
    problem = problem_of(tours.texts(DraftRewards(rewards_of(tours, {"loss": Direction.MINIMIZE}, MEASURED), MEASURED)))
    # Rounding is no improvement: 1e-6 of the initial value is not.
    assert problem.targets[0].rule == "loss < 9.99999e+307 and correct >= 1"
    assert problem.space.records == ["combined_score", "runs"]


@pytest.mark.parametrize("values", [(0.8, 1.0, 1.0), (0.5, 1.0), (0.99, 0.98, 1.0)])
def test_a_noisy_score_has_a_target_in_reach(line: Path, values: tuple[float, ...]) -> None:
    noise = noise_of([{"combined_score": value} for value in values])
    seed = {"combined_score": fmean(values)}
    rewards = DraftRewards(rewards_of(read_openevolve(line), {}, seed), seed, noise)
    assert fmean(values) < float(rewards.better.partition(">")[2]) < 1.0


def test_of_several_objectives_none_may_be_worse_than_the_seeds_and_one_must_be_better(tmp_path: Path) -> None:
    tours, seed = read_shinka(made(tmp_path / "tours", SHINKA)), {"accuracy": 0.8, "length": 12.0, "correct": 1.0}
    rewards = DraftRewards(rewards_of(tours, directions_of(["accuracy"], ["length"]), seed), seed)
    problem = problem_of(tours.texts(rewards))
    assert problem.targets[0].rule == (
        "accuracy >= 0.7999992 and length <= 12.00001 and (accuracy > 0.8000008 or length < 11.99999) and correct >= 1"
    )
    vectors = [(0.8, 12, 1), (0.8, 11, 1), (0.9, 12, 1), (0.9, 13, 1), (0.7, 11, 1), (0.8, 11, 0)]
    assert [problem.targets_met(vector) for vector in vectors] == [0, 1, 1, 0, 0, 0]
    accuracy, *_ = replace(rewards, noise={"accuracy": 0.02}).better.split(" and ")
    assert accuracy == "accuracy >= 0.7599992", "an equal program must pass each confirmation"


def test_a_factor_of_two_counts_alike_in_every_objective(line: Path) -> None:
    seed, rule = {"mass": 650.0, "stiffness": 0.000675, "error": 0.6}, "mass <= 500 and stiffness >= 0.001"
    rewards = rewards_of(read_openevolve(line), directions_of(["stiffness"], ["mass", "error"]), seed, [rule])
    assert [o.range for o in rewards] == [(0, 0.002), (0, 1300), (0, 1.2)]
    target = Target(name="light", rule=rule, unlock=True)
    ranking = problem_of(read_openevolve(line).texts(DraftRewards(rewards, seed, targets=[target]))).ranking
    light, better_in_all = (0.00046, 283, 2.2), (0.00103, 629, 0.1)
    assert ranking.merit(better_in_all, 0) > ranking.merit(light, 0)


def test_a_score_has_a_direction_and_other_metrics_are_asked_for(line: Path, tmp_path: Path) -> None:
    draft, tours = read_openevolve(line), read_shinka(made(tmp_path / "tours", SHINKA))
    assert [o.role.value for o in rewards_of(draft, {}, MEASURED)] == ["objective", "record", "record", "record"]
    assert [o.directed for o in rewards_of(tours, {}, {"loss": 1.0, "correct": 1.0})] == ["loss ↑", "correct ↑"]
    with pytest.raises(
        InvalidInputError,
        match=r"returned loss, speed, and no combined_score\. Name .*--maximize loss; in Python maximize='loss'",
    ):
        rewards_of(tours, {}, {"loss": 1.0, "speed": 2.0})
    with pytest.raises(InvalidInputError, match="no finite number"):
        rewards_of(draft, {}, {})
    with pytest.raises(
        InvalidInputError, match=r"cannot minimize lss: .* no number 'lss'\. It returned combined_score, correct"
    ):
        rewards_of(draft, {"lss": Direction.MINIMIZE}, MEASURED)
    with pytest.raises(InvalidInputError, match="'loss' is both maximized and minimized"):
        directions_of(["loss"], ["loss"])
    with pytest.raises(InvalidInputError, match="'loss' is named twice"):
        directions_of(["loss", "loss"], [])


def test_weights_order_programs_as_the_mean_that_openevolve_maximizes(line: Path) -> None:
    rated = {"rated metrics": "accuracy, speed, gain"}
    draft = after_trial(read_openevolve(line), rated)
    seed = {"accuracy": 0.25, "speed": 40.0, "complexity": 9.0, "gain": -3.0, "mean_of_metrics": 12.416}
    texts = draft.texts(DraftRewards(rewards_of(draft, {}, seed), seed))
    problem = problem_of(texts)
    assert [o.name for o in problem.space.selected] == ["accuracy", "speed", "gain"]
    assert problem.rules[0].uses == {"mean_of_metrics"}
    assert "OpenEvolve maximizes the mean of all" in texts["problem.toml"]
    rng = random.Random(7)
    programs = [[rng.uniform(-9, 9) for _ in problem.objectives] for _ in range(40)]
    means = [sum(vector[:3]) / 3 for vector in programs]
    scalars = [problem.scalarize(vector) or 0.0 for vector in programs]
    assert sorted(range(40), key=means.__getitem__) == sorted(range(40), key=scalars.__getitem__)
    declared = draft.texts(DraftRewards(rewards_of(draft, {"speed": Direction.MINIMIZE}, seed), seed))
    assert "mean_of_metrics" not in declared["problem.toml"]
    assert problem_of(declared).weights is None


def test_a_project_in_one_text_is_imported(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    (theirs / "initial_program").mkdir(parents=True)
    (theirs / "evaluator.py").write_text("def evaluate(path):\n    return {'combined_score': 1.0}\n")
    with pytest.raises(InvalidInputError, match=r"is a folder: join its files into initial_program\.txt"):
        read_openevolve(theirs)
    (theirs / "initial_program.txt").write_text("* TSP.cpp *:\n@@@\nint main() {}\n@@@\n")
    trial = read_openevolve(theirs).trial()
    assert trial.language is not None
    assert (trial.language.name, trial.language.file) == ("Text", "candidate.txt")


def test_requirements_are_declared_if_one_is_missing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "evaluator.py").write_text("def evaluate(path):\n    return {'combined_score': 1.0}\n")
    (theirs / "initial_program.py").write_text("x = 1\n")
    listed = theirs / "requirements.txt"
    listed.write_text(
        "# all\nopenevolve>=0.2\nnumpy  # arrays\njaxx >=0.4 \\\n  ; python_version>'3'\n-e .\nhttps://x.org/a.whl\n"
    )
    draft = read_openevolve(theirs)
    assert draft.packages.requirements == draft.trial().requirements == ("numpy", "jaxx >=0.4 ; python_version>'3'")
    assert "left out: -e ., https://x.org/a.whl" in " ".join(draft.remarks)
    listed.write_text("numpy\nnot-there-xyz; python_version < '3'\nnor-there-xyz; sys_platform == 'win32'\n")
    assert read_openevolve(theirs).trial().requirements == ()
    listed.write_text("numpy; sys_platform ~= 'win32'\n")  # whose meaning pip refuses
    assert read_openevolve(theirs).trial().requirements == ()
    listed.write_text("numpy\n")
    draft = read_openevolve(theirs)
    assert draft.trial().requirements == ()
    # What the user adds is installed in a new environment, which needs the others, too.
    with_more = replace(draft, packages=replace(draft.packages, demanded=("psutil", "numpy")))
    assert with_more.trial().requirements == ("numpy", "psutil")
    listed.unlink()
    monkeypatch.setattr(naming, "_installed", lambda package: package != "scikit-learn")
    (theirs / "evaluator.py").write_text("import numpy, helper, unheard_of\nfrom sklearn.svm import SVC\n")
    assert read_openevolve(theirs).packages.requirements == ("numpy", "scikit-learn")


def test_files_that_would_be_left_out_are_included_on_request(line: Path) -> None:
    (line / "params.yaml").write_text("k: 2")
    (line / "outputs" / "deep").mkdir(parents=True)
    (line / "outputs" / "deep" / "start.csv").write_text("1")
    (line / "outputs" / "log.md").write_text("x")
    (line / "README.md").write_text("x")
    draft = read_openevolve(line, Choice(include=("./params.yaml", "outputs/deep", "config.yaml")))
    assert {"params.yaml", "outputs/deep/start.csv", "config.yaml"} < set(draft.files)
    assert draft.left_out.keys() == {"README.md", "outputs/log.md"}
    assert read_openevolve(line, Choice(include=("*.md",))).left_out.keys() == {"params.yaml", "outputs"}
    with pytest.raises(NotFoundError, match=r"--include 'lost' matches no file"):
        read_openevolve(line, Choice(include=("lost",)))


def test_program_and_evaluator_may_have_other_names_and_lie_in_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"src/candidate.py": "x = 1\n", "check/score.py": "def evaluate(path):\n    return {'combined_score': 1}\n"}
    folder = made(tmp_path / "other", files)
    draft = read_openevolve(folder, Choice(program="src/candidate.py", evaluator="check/score.py"))
    assert (draft.seed, draft.options["evaluator"]) == ("initial_program.py", "check/score.py")
    assert draft.trial().seed_program == "x = 1\n"
    monkeypatch.chdir(tmp_path)  # as a shell completes them
    assert read_shinka(folder, Choice("other/src/candidate.py", "other/check/score.py")).seed == draft.seed
    with pytest.raises(NotFoundError, match=r"--program is \.\./a\.py: .* contains no such file"):
        read_openevolve(folder, Choice(program="../a.py"))
    with pytest.raises(NotFoundError, match=r"name the files with --program and --evaluator"):
        read_openevolve(folder)


def test_a_byte_order_mark_is_no_part_of_a_text_and_aliases_are_read(tmp_path: Path) -> None:
    config = "llm:\n  models: &m\n    - a: &d {k: 1}\n  others: *m\n  more: {<<: *d}\nprompt: {system_message: Fit.}\n"
    texts = {**OPENEVOLVE, "config.yaml": config}
    folder = made(tmp_path / "marked", {name: f"\ufeff{text}" for name, text in texts.items()})
    draft = read_openevolve(folder)
    assert draft.description == "Fit."
    assert draft.trial().seed_program == OPENEVOLVE["initial_program.py"]
