"""Builds, the compile cache and toolchains outside ``/usr``."""

from contextlib import closing
from pathlib import Path

import pytest

from evaluators.build_cache import BuildCache
from evaluators.building import MAX_BUILT_FILES, read_build
from evaluators.contained.tier_a import NAME as TIER_A
from evaluators.evaluator import SandboxEvaluator
from evaluators.toolchains import Toolchains
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.known_languages import KNOWN
from speciate.domain.language import Language

STAMPED = {
    "name": "sh",
    "file": "program.sh",
    "build": ["/bin/sh", "-c", "read x < /proc/cpuinfo; echo $$ >> stamp; date +%N >> stamp"],
    "run": ["/bin/sh", "program.sh"],
}
SHOW = "while read x; do echo $x; done < stamp"
"""Prints what the build wrote, which differs each time."""


@pytest.fixture
def made(make_problem):
    def make(**language):
        cases = [{"input": ["1"], "expected": "never"}]
        limits = {"wall_s": 30, "cpu_s": 30}
        data_files = {"a.txt": data} if (data := language.pop("data", "")) else {}
        return make_problem("cases", cases=cases, language=STAMPED | language, limits=limits, data_files=data_files)

    return make


@pytest.fixture
def cached(strongest, tmp_path):
    if strongest.tier != TIER_A:
        pytest.skip("programs that are started need tier A, which does not hold here")
    with closing(SandboxEvaluator(TIER_A, builds=BuildCache(tmp_path / "builds"))) as sandbox:
        yield sandbox


def output_of(sandbox, problem, program=SHOW):
    (evaluation,) = sandbox.evaluate(problem, [program], seeds=[0])
    assert evaluation.rewards == (0.0,), evaluation
    return evaluation.artifacts["cases"]


def test_the_same_program_is_built_once(cached, made, tmp_path):
    first = output_of(cached, made())
    assert output_of(cached, made()) == first
    with closing(SandboxEvaluator(TIER_A, builds=BuildCache(tmp_path / "builds"))) as another:
        assert output_of(another, made()) == first


@pytest.mark.parametrize("change", [{"build_s": 19}, {"build_bytes": 1 << 20}, {"build": [*STAMPED["build"], "flag"]}])
def test_another_limit_or_flag_is_another_build(cached, made, change):
    assert output_of(cached, made()) != output_of(cached, made(**change))


def test_other_data_files_are_another_build(cached, made):
    first = output_of(cached, made(data="one"))
    assert output_of(cached, made(data="one")) == first
    assert output_of(cached, made(data="two")) != first


def test_another_source_is_another_build(cached, made):
    assert output_of(cached, made()) != output_of(cached, made(), f"{SHOW}\n")


def test_a_damaged_entry_is_built_again(cached, made, tmp_path):
    first = output_of(cached, made())
    (entry,) = (tmp_path / "builds").glob("*.built")
    entry.write_bytes(entry.read_bytes()[:-10] + b"0123456789")
    again = output_of(cached, made())
    assert again != first
    assert output_of(cached, made()) == again


def test_a_failed_build_is_not_stored(cached, made, tmp_path):
    problem = made(build=["/bin/sh", "-c", "echo out; echo wrong >&2; exit 3"])
    for _ in range(2):
        (evaluation,) = cached.evaluate(problem, [SHOW], seeds=[0])
        assert evaluation.failure is not None
        assert evaluation.failure.reason == "build_failed"
        assert evaluation.failure.detail == "out\nwrong\n/bin/sh: it exited with code 3"
    assert not list(tmp_path.glob("builds/*"))


def test_long_messages_keep_their_beginning_and_their_end(cached, made):
    script = "echo first; i=0; while [ $i -lt 2000 ]; do echo filler $i; i=$((i+1)); done; echo last; exit 1"
    (evaluation,) = cached.evaluate(made(build=["/bin/sh", "-c", script]), [SHOW], seeds=[0])
    assert evaluation.failure is not None
    detail = evaluation.failure.detail
    assert detail.startswith("first\nfiller 0\n")
    assert "\nlast\n" in detail
    assert len(detail) <= 4000


def test_what_a_program_leaves_behind_is_not_in_the_cache(cached, made):
    changes = f"{SHOW}\necho changed > stamp\necho 'echo changed' > program.sh"
    assert output_of(cached, made(), changes) == output_of(cached, made(), changes)


def test_candidates_without_isolation_do_not_share_a_cache(made, tmp_path):
    with closing(SandboxEvaluator("unsafe", builds=BuildCache(tmp_path / "builds"))) as sandbox:
        assert output_of(sandbox, made()) != output_of(sandbox, made())
    assert not (tmp_path / "builds").exists()


FILE = ["aGVsbG8=", True]


@pytest.mark.parametrize(
    "built",
    [
        {"../evil": FILE},
        {"/etc/evil": FILE},
        {".hidden": FILE},
        {"a/../b": FILE},
        {"program": ["not base64!", True]},
        {"program": "aGVsbG8="},
        {"program": ["aGVsbG8=", 1]},
        {"program": ["eA==" * 400, False]},
        {f"part{i}": FILE for i in range(MAX_BUILT_FILES + 1)},
        ["program"],
    ],
)
def test_a_forged_report_of_a_build_is_refused(built):
    found = read_build({"built": built}, 1000)
    assert not isinstance(found, dict)
    assert found.reason == "build_malformed"
    assert read_build({"built": {"bin/program": FILE}}, 1000) == {"bin/program": tuple(FILE)}


@pytest.fixture
def toolchain(tmp_path):
    folder = tmp_path / "toolchain"
    (folder / "bin").mkdir(parents=True)
    tool = folder / "bin" / "own-compiler"
    tool.write_text("#!/bin/sh\ncp $1 built.sh\n")
    for path in (tool, *tool.parents):
        if path.is_relative_to(tmp_path):
            path.chmod(0o755)
    return folder


def test_a_toolchain_outside_usr_is_shown_to_candidates(strongest, make_problem, toolchain):
    if strongest.tier != TIER_A:
        pytest.skip("programs that are started need tier A, which does not hold here")
    language = {"name": "own", "file": "a.own", "build": ["own-compiler", "a.own"], "run": ["/bin/sh", "built.sh"]}
    problem = make_problem("cases", cases=[{"input": ["7"], "expected": "7"}], language=language)
    with closing(SandboxEvaluator(TIER_A, toolchains=Toolchains([toolchain]))) as sandbox:
        assert sandbox.evaluate(problem, ["read x; echo $x"], seeds=[0])[0].rewards == (1.0,)
    with (
        closing(SandboxEvaluator(TIER_A)) as sandbox,
        pytest.raises(EvaluatorUnavailableError, match=r"need 'own-compiler'"),
    ):
        sandbox.evaluate(problem, ["read x; echo $x"], seeds=[0])


def test_a_new_version_of_a_compiler_is_another_identity(toolchain):
    language = Language(name="own", file="a.own", build=("own-compiler",), run=("./a",))
    first = Toolchains([toolchain]).identity(language)
    assert Toolchains([toolchain]).identity(language) == first
    (toolchain / "bin" / "own-compiler").write_text("#!/bin/sh\n")
    assert Toolchains([toolchain]).identity(language) != first


def test_a_program_that_leads_out_of_the_shown_folders_is_not_found(toolchain, tmp_path):
    (tmp_path / "outside").write_text("#!/bin/sh\n")
    (tmp_path / "outside").chmod(0o755)
    (toolchain / "bin" / "linked").symlink_to(tmp_path / "outside")
    assert Toolchains([toolchain]).find("own-compiler") == Path(toolchain, "bin", "own-compiler")
    assert Toolchains([toolchain]).find("linked") is None


def test_a_compiler_that_does_not_work_is_no_compiler(toolchain):
    """As that of rustup outside of its home."""
    broken = toolchain / "bin" / "rustc"
    broken.write_text("#!/bin/sh\necho 'no toolchain is installed' >&2\nexit 1\n")
    broken.chmod(0o755)
    found = {each.name: each for each in Toolchains([toolchain]).languages()}
    assert found["Rust"].problem.startswith("rustc does not work: `rustc --version` fails for ")
    with pytest.raises(EvaluatorUnavailableError, match="does not work"):
        Toolchains([toolchain]).require(Language(name="Rust", file="a.rs", build=("rustc", "a.rs"), run=("./a",)))


def test_a_compiler_whose_library_is_installed_later_works_without_a_restart(toolchain):
    tool, library = toolchain / "bin" / "gcc", toolchain / "library"
    tool.write_text(f"#!/bin/sh\ntest -e {library} && echo gcc 12\n")
    tool.chmod(0o755)
    tools = Toolchains([toolchain])
    assert not tools.works("gcc")
    library.touch()
    assert tools.works("gcc")


def test_languages_are_listed_with_their_version_or_their_problem():
    found = list(Toolchains().languages())
    assert [each.name for each in found] == [known.name for known in KNOWN.values()]
    assert all(bool(each.version) != bool(each.problem) for each in found)


def test_a_tolerance_holds_for_the_numbers_of_a_printed_text(cached, make_problem):
    cases = [{"input": [""], "expected": "pi 3.14159265\n", "tolerance": 1e-6}]
    language = {"name": "sh", "file": "program.sh", "run": ["/bin/sh", "program.sh"]}
    problem = make_problem("cases", cases=cases, language=language)
    close, far = cached.evaluate(problem, ["echo pi 3.1415927", "echo pi 3.1416"], seeds=[0, 0])
    assert (close.rewards, far.rewards) == ((1.0,), (0.0,))


def test_built_files_may_be_named_like_inner_classes_of_java(cached, made):
    build = ["/bin/sh", "-c", "echo inner > 'Main$Inner.class'"]
    assert "inner" in output_of(cached, made(build=build), "read x < 'Main$Inner.class'; echo $x")
