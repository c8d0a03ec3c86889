"""Tasks on public datasets: hand-made rows in the datasets' formats, scored in the sandbox; errors for bad rows."""

import base64
import io
import json
import pickle
import zlib

import numpy as np
import pytest

from experiments.datasets import livecodebench
from speciate.domain.errors import EvaluatorUnavailableError, InvalidInputError
from speciate.domain.policy import Policy, PolicyRole
from speciate.prompts.mutation import build_prompt
from speciate.prompts.parse import parse_completion
from speciate.training.advantages import ESTIMATORS
from speciate.training.reward_batch import EstimatorConfig
from speciate.training.tasks import Split
from speciate.training.tasks import open_task as open_by_name


def musique_row(number=0, hops=2, **changes):
    steps = [
        {"id": 7, "question": "Green >> performer", "answer": "x", "paragraph_support_idx": (5, 2, 0, 9)[i]}
        for i in range(hops)
    ]
    return {
        "id": f"{hops}hop__460946_{number}",
        "paragraphs": [
            {"idx": i, "title": f"Title {i}", "paragraph_text": f"Text {i} of {number}.", "is_supporting": i in (2, 5)}
            for i in range(20)
        ],
        "question": f"Who is the spouse of the Green performer of {number}?",
        "question_decomposition": steps,
        "answer": "Miquette Giraudy",
        "answer_aliases": ["Mme. Giraudy"],
        "answerable": True,
    } | changes


def eureqa_row(number=0, **changes):
    return {
        "idx": number,
        "question": [f"Person A of text {number} won Award B.", "Award B was founded by Person C."],
        "entity_masks": ["Person A", "Award B", "Person C", "Country D", "Film E", "Person F"],
        "entities": ["Robert_Rodriguez", "32nd_European_Film_Awards", "C", "The_D", "From_Dusk:_The_E", "Given"],
    } | changes


def toolrl_row(answer, number=0):
    system = (
        "You help.\n\n**Available Tools**\nUse:\n1. Name: GetNews\nParameters: {}\n\n**Steps for Each Turn**\n1. Think"
    )
    user = f"**Dialogue Records History**\n<user> News {number}, please. </user>"
    return {
        "data_source": "rlla",
        "prompt": [{"content": system, "role": "system"}, {"content": user, "role": "user"}],
        "ability": "math",
        "reward_model": {"ground_truth": f"<think> Think. </think>\n{answer}", "style": "rule"},
        "extra_info": {"index": number, "split": "train"},
    }


def packed(value):
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(value)))).decode()


def listed(pairs, kind):
    return [{"input": given, "output": wanted, "testtype": kind} for given, wanted in pairs]


def lcb_row(number=0, kind="functional", **changes):
    if kind == "functional":
        public, private = [("[1, 2]\n1", "[2, 3]")], [("[]\n5", "[]"), ("[10]\n-1", "[9]")]
        starter = "class Solution:\n    def addAll(self, nums: List[int], k: int) -> List[int]:\n        "
    else:
        public, private, starter = [("2\n1 2\n", "3\n0.50\n")], [("1\n7\n", "7\n0.50\n"), ("1\n8", "8 \n0.50\n")], ""
    return {
        "question_title": f"add-all {number}",
        "question_content": f"Add k to every number ({number}).",
        "platform": "leetcode",
        "question_id": f"abc{number}_a",
        "contest_id": "abc301",
        "contest_date": "2023-05-13T00:00:00",
        "starter_code": starter,
        "difficulty": "easy",
        "public_test_cases": json.dumps(listed(public, kind)),
        "private_test_cases": packed(listed(private, kind)),
        "metadata": json.dumps({"func_name": "addAll"} if kind == "functional" else {}),
    } | changes


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow.parquet").write_table(pytest.importorskip("pyarrow").Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def open_task(name, data, evaluator=None):
    return open_by_name(f"experiments.datasets.{name}:task", data, evaluator)


TRAIN_FILES = {
    "musique": ("musique_ans_v1.0_train.jsonl", musique_row),
    "eureqa": ("questions_normal_5.jsonl", eureqa_row),
    "toolrl": ("rlla_4k/train.parquet", lambda number: toolrl_row("<response> Hi. </response>", number)),
    "livecodebench": ("test.jsonl", lcb_row),
}


def one(name, tmp_path, row, evaluator=None, file=None):
    write(tmp_path / (file or TRAIN_FILES[name][0]), [row])
    task = open_task(name, tmp_path, evaluator)
    return task, next(task.problems(Split.TRAIN, 1))


def refused(name, tmp_path, rows, *, file=None):
    write(tmp_path / (file or TRAIN_FILES[name][0]), rows)
    with pytest.raises(InvalidInputError) as caught:
        open_task(name, tmp_path)
    return str(caught.value)


@pytest.mark.parametrize("name", TRAIN_FILES)
class TestEveryTask:
    def test_problems_are_the_same_every_time_and_counted(self, name, tmp_path):
        file, row = TRAIN_FILES[name]
        write(tmp_path / file, [row(i) for i in range(5)] + [row(3)])  # a repeated row counts once
        task = open_task(name, tmp_path)
        problems = list(task.problems(Split.TRAIN, 5))
        assert len({p.slug for p in problems}) == 5
        again = open_task(name, tmp_path).problems(Split.TRAIN, 2, start=3)
        assert [p.digest for p in again] == [p.digest for p in problems[3:]]
        with pytest.raises(InvalidInputError, match="5 problems in its train split: 6 were requested"):
            next(task.problems(Split.TRAIN, 6))
        with pytest.raises(InvalidInputError, match="Add files"):
            next(task.problems(Split.TEST, 1))

    def test_prompts_need_no_settings_of_the_policy(self, name, tmp_path):
        task, problem = one(name, tmp_path, TRAIN_FILES[name][1](1))
        policy = Policy(slug="p", kind="training", answers_per_rollout=3)
        user = build_prompt(problem, PolicyRole.PROPOSE, [], [], policy, np.random.default_rng(0)).user
        assert problem.description.strip() in user
        assert "Giraudy" not in user
        assert "Rodriguez" not in user
        assert problem.targets[0].unlock
        assert problem.space.names == task.rewards[: len(problem.space.names)]

    def test_files_must_exist(self, name, tmp_path):
        with pytest.raises(InvalidInputError, match=r"contains no files of task .* Expected: ") as caught:
            open_task(name, tmp_path)
        assert "train-on-your-data" in caught.value.remedy

    def test_nothing_is_scored_without_an_evaluator(self, name, tmp_path):
        task, problem = one(name, tmp_path, TRAIN_FILES[name][1](1))
        with pytest.raises(EvaluatorUnavailableError, match="without an evaluator"):
            task.score([(problem, ["answer: x"])])

    @pytest.mark.parametrize("text", ["{", "[1]", "[" * 100_000, '{"id": NaN}', '{"id": 1e999}', "\xff\xfe"])
    def test_an_invalid_line_is_refused_with_its_place(self, name, tmp_path, text):
        file = TRAIN_FILES[name][0]
        if name == "toolrl":
            file, text = "rlla_rl.json", f"[{text}]"
        (tmp_path / file).write_text(text, "latin-1")
        with pytest.raises(InvalidInputError, match=file):
            open_task(name, tmp_path)


class TestMusique:
    def test_rewards_are_the_published_ones(self, tmp_path, strongest):
        task, problem = one("musique", tmp_path, musique_row(), strongest)
        assert problem.description.count("[5] Title 5\nText 5 of 0.") == 1
        answers = [
            "support: 2, 5\nanswer: Miquette Giraudy",
            "Support: [5]\nAnswer: the giraudy, miquette!",
            "support: 1, 3, 4, 6, 2, 5\nanswer: mme Giraudy",
            "support: 5\nanswer: Pelé Giraudy",
            "support: 2, 5",
            "",
            "answer: 1" + "0" * 400_000,
        ]
        [scores] = task.score([(problem, answers)])
        assert scores == [
            (1, 1, 1, 1, 1),
            (1, 0, 1, 1, 1),
            (0, 0, 1, 1, 1),  # only the first four numbers count
            (1, 0, 1, 1, 0.5),
            (0, 0, 0, 0, 0),  # without an answer nothing counts
            (0, 0, 0, 0, 0),
            (0, 0, 1, 1, 0),
        ]
        assert problem.targets_met(scores[0]) == 1
        assert problem.scalarize(scores[3]) == pytest.approx((3 + 3 * 0.5) / 7)

    def test_splits_are_the_files_and_rows_without_answers_are_dropped(self, tmp_path):
        write(tmp_path / "musique_ans_v1.0_train.jsonl", [musique_row(1), musique_row(2, hops=4)])
        write(tmp_path / "musique_ans_v1.0_dev.jsonl", [musique_row(2, hops=4), musique_row(3, answerable=False)])
        write(tmp_path / "musique_ans_v1.0_test.jsonl", [{"no": "answers"}])
        task = open_task("musique", tmp_path)
        assert [p.slug for p in task.pools[Split.TRAIN]] == [
            "musique-2hop-460946-1"
        ]  # test problems are not trained on
        assert [p.slug for p in task.pools[Split.TEST]] == ["musique-4hop-460946-2"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"question": 3}, "question: expected a text, got int 3"),
            ({"question": "x" * 10_000_000}, "question: 10000000 characters: expected at most 2000"),
            ({"answer": " "}, "answer: expected a text"),
            ({"paragraphs": {}}, "paragraphs: expected a list"),
            ({"paragraphs": [{"idx": True}]}, "paragraphs.0.idx: expected a whole number"),
            ({"question_decomposition": [{}]}, "question_decomposition: 1 entries: expected 2 to 4"),
            ({"question_decomposition": [{"paragraph_support_idx": 20}] * 2}, "no paragraph has the idx 20"),
            ({"answer_aliases": [None]}, "answer_aliases.0: expected a text"),
            (
                {"paragraphs": [{"idx": i, "title": "t", "paragraph_text": "x" * 9999} for i in range(20)]},
                "description: invalid problem",
            ),
        ],
    )
    def test_a_bad_row_is_refused_with_file_line_and_field(self, tmp_path, changes, message):
        text = refused("musique", tmp_path, [musique_row(1), musique_row(2, **changes)])
        assert text.startswith("musique_ans_v1.0_train.jsonl:2 ")
        assert message in text
        assert len(text) < 300

    def test_a_line_that_is_no_json_is_named(self, tmp_path):
        path = tmp_path / "musique_ans_v1.0_train.jsonl"
        write(path, [musique_row(1)])
        path.write_text(path.read_text().rstrip("\n") + '\n{"id": }\n')
        with pytest.raises(InvalidInputError, match=r"^musique_ans_v1.0_train.jsonl:2:8: no JSON: Expecting value\.$"):
            open_task("musique", tmp_path)

    def test_a_missing_field_is_named(self, tmp_path):
        row = musique_row()
        del row["paragraphs"][7]["title"]
        assert "paragraphs.7.title: it is missing" in refused("musique", tmp_path, [row])

    def test_two_questions_of_one_name_are_refused(self, tmp_path):
        rows = [musique_row(1), musique_row(1, question="Another?")]
        assert "both called 'musique-2hop-460946-1'" in refused("musique", tmp_path, rows)


class TestEureqa:
    def test_each_entity_is_matched_separately(self, tmp_path, strongest):
        task, problem = one("eureqa", tmp_path, eureqa_row(), strongest)
        answers = [
            "A: Robert Rodriguez\nB: 32nd European film awards\nC: c\nD: D\nE: from dusk the E",
            "a : the Robert_Rodriguez!\nA: later\nB:\nE: wrong",
            "Robert Rodriguez",
            "A:\nB: ",
        ]
        assert task.score([(problem, answers)]) == [[(1.0,) * 5, (1, 0, 0, 0, 0), (0.0,) * 5, (0.0,) * 5]]

    def test_hard_questions_are_split_and_normal_ones_are_for_training(self, tmp_path):
        write(tmp_path / "questions_normal_5-00000-of-00001.parquet", [eureqa_row(i) for i in range(10)])
        write(tmp_path / "questions_hard_5" / "0000.parquet", [eureqa_row(i + 50) for i in range(40)])
        write(tmp_path / "questions_hard_4-00000-of-00001.parquet", [{"idx": 1}])
        task = open_task("eureqa", tmp_path)
        train, test = ({p.slug for p in task.pools[split]} for split in (Split.TRAIN, Split.TEST))
        assert len(train) + len(test) == 50
        assert 10 <= len(test) <= 30
        assert all("hard" in slug for slug in test)

    def test_bad_rows_are_refused(self, tmp_path):
        assert "entities: 5 entries: expected 6 to 6" in refused("eureqa", tmp_path, [eureqa_row(entities=["x"] * 5)])
        assert "idx: expected" in refused("eureqa", tmp_path, [eureqa_row(idx=None)])
        rows = [eureqa_row(entities=["a\nB: b", *"bcdef"])]
        assert "entities.0: expected a name on one line" in refused("eureqa", tmp_path, rows)


class TestToolrl:
    CALLS = '<tool_call>\n{"name": "GetNews", "parameters": {"page": "1", "n": 2}}\n{"name": "Stop", "parameters": {}}'

    def test_rewards_are_the_published_ones(self, tmp_path, strongest):
        task, problem = one("toolrl", tmp_path, toolrl_row(f"{self.CALLS}\n</tool_call>"), strongest)
        right = f"{self.CALLS}\n</tool_call>"
        one_call = '<tool_call>{"name": "getnews", "parameters": %s}</tool_call>'
        answers = [
            right,
            f"Sure!\n{right}",
            one_call % '{"page": 1}',
            one_call % '{"page": "1", "n": 3.0, "x": 0}',
            one_call % '{"n": "2"}',
            "<response> no </response>",
            right.replace("</tool_call>", "{broken</tool_call>"),
            one_call % '{"n": NaN}',
            one_call % ("[" * 100_000),
            "no section",
            "<tool_call>" * 50_000,
        ]
        [scores] = task.score([(problem, answers)])
        third = pytest.approx(2 / 3)
        assert scores[:7] == [
            (1, 1, 1, 1),
            (0, 1, 1, 1),
            (1, third, pytest.approx(1 / 3), 0.25),
            (1, third, pytest.approx(0.4), 0.25),
            (1, third, pytest.approx(1 / 3), 0.25),
            (0, 0, 0, 0),
            (0, 1, 1, 1),
        ]
        assert scores[7:] == [(0, 0, 0, 0)] * 4

    def test_no_call_is_right_if_no_tool_fits(self, tmp_path, strongest):
        task, problem = one("toolrl", tmp_path, toolrl_row("<response> Which page? </response>"), strongest)
        answers = ["<response> Eh? </response>", "<response></response>", f"{self.CALLS}</tool_call>"]
        assert task.score([(problem, answers)]) == [[(1, 1, 1, 1), (0, 1, 1, 1), (0, 0, 0, 0)]]

    def test_splits_are_the_files_or_by_digest(self, tmp_path):
        answer = "<response> Hi. </response>"
        rows = [toolrl_row(answer, i) for i in range(40)]
        raw = [
            {
                "instruction": row["prompt"][0]["content"],
                "input": row["prompt"][1]["content"],
                "output": row["reward_model"]["ground_truth"],
            }
            for row in rows
        ]
        write(tmp_path / "rlla_4k_raw" / "rlla_rl.json", raw)
        pools = open_task("toolrl", tmp_path).pools
        assert len(pools[Split.TRAIN]) + len(pools[Split.TEST]) == 40
        assert 10 < len(pools[Split.TEST]) < 30
        write(tmp_path / "rlla_4k" / "train.parquet", rows[:6])
        write(tmp_path / "rlla_4k" / "test.parquet", rows[6:8])
        packed_pools = open_task("toolrl", tmp_path).pools
        assert [len(packed_pools[split]) for split in (Split.TRAIN, Split.TEST)] == [6, 2]
        assert {p.digest for p in packed_pools[Split.TRAIN]} < {p.digest for pool in pools.values() for p in pool}

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            ("<tool_call>\nGetNews(1)\n</tool_call>", "expected tool calls as JSON"),
            ('<tool_call>{"name": "a", "parameters": {"x": NaN}}</tool_call>', "expected tool calls as JSON"),
            ('<tool_call>{"name": "a"}</tool_call>', "expected tool calls as JSON"),
            ("<tool_call></tool_call>", "expected tool calls as JSON"),
            ("Nothing.", "expected a <tool_call> or a <response> section"),
            ("x" * 10_000_000, "expected at most 50000"),
        ],
    )
    def test_invalid_reference_answers_are_refused(self, tmp_path, answer, message):
        text = refused("toolrl", tmp_path, [toolrl_row(answer)])
        assert text.startswith("train.parquet:1 reward_model.ground_truth: ")
        assert message in text

    def test_bad_prompts_and_files_are_refused(self, tmp_path):
        row = toolrl_row("<response> a </response>")
        row["prompt"][0]["content"] = "no tools"
        assert "prompt.0.content: expected a list of tools" in refused("toolrl", tmp_path, [row])
        (tmp_path / "rlla_4k" / "train.parquet").write_bytes(b"PAR1" + b"\0" * 1000 + b"PAR1")
        with pytest.raises(InvalidInputError, match=r"train\.parquet"):
            open_task("toolrl", tmp_path)


class TestLiveCodeBench:
    def test_functions_are_called_and_private_tests_stay_hidden(self, tmp_path, strongest):
        task, problem = one("livecodebench", tmp_path, lcb_row(), strongest)
        assert "def addAll(nums: list[int], k: int) -> list[int]:" in problem.description
        assert [case.hidden for case in problem.cases] == [False, True, True]
        programs = [
            "def addAll(nums, k):\n    return [n + k for n in nums]\n",
            "def addAll(nums, k):\n    return [2, 3]\n",
            "def addAll(nums, k):\n    return tuple(n + k for n in nums) if nums else 1 / 0\n",
            "class Solution:\n    pass\n",
            "import os\nos._exit(0)\n",
        ]
        assert task.score([(problem, programs)]) == [[(1, 1, 1), (1, 0, 0), (1, 0, 1), (0, 0, 0), (0, 0, 0)]]

    def test_standard_input_is_an_argument_and_numbers_compare_by_value(self, tmp_path, strongest):
        task, problem = one("livecodebench", tmp_path, lcb_row(kind="stdin"), strongest)
        programs = [
            "def solve(text):\n    return f'{sum(map(int, text.split()[1:]))}  \\n0.5'\n",
            "def solve(text):\n    return text.split()[1] + '\\n0.5\\n'\n",
            "def solve(text):\n    return text.split()[1]\n",
            "def solve(text):\n    return 3\n",
            "def solve(text):\n    return 'sNaN\\nnan' if '7' not in text else 1 / 0\n",
            "print(input())\n",
        ]
        expected = [(1, 1, 1), (0, 1, 1), (0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)]
        assert task.score([(problem, programs)]) == [expected]
        [evaluation] = strongest.evaluate(problem, [programs[1]], seeds=[0])
        assert evaluation.artifacts == {"tests": "input '2\\n1 2\\n' expected '3\\n0.50\\n' got '1\\n0.5\\n'"}

    def test_answers_are_compared_by_their_structure(self, tmp_path):
        _, problem = one("livecodebench", tmp_path, lcb_row(kind="stdin"))
        first = "```python\ndef solve(text):\n    return '7'\n```"
        policy = Policy(slug="p", kind="training", answers_per_rollout=3)
        text = (
            f"{first}\n---\n{first.replace(' return', ' # same' + chr(10) + '    return')}\n---\n```python\nx = 1\n```"
        )
        read = parse_completion(text, problem=problem, policy=policy, parent=None)
        assert [answer.failure and answer.failure.reason for answer in read] == [None, "duplicate_in_rollout"]

    def test_public_tests_come_first_then_small_private_ones(self, tmp_path):
        private = [(f"[{'1, ' * n}1]\n0", f"[{'1, ' * n}1]") for n in (9000, *range(30, 1, -1))]
        changes = {"private_test_cases": packed(listed([("[1, 2]\n1", "[2, 3]"), *private], "functional"))}
        _, problem = one("livecodebench", tmp_path, lcb_row(**changes))
        lengths = [len(case.input[0]) for case in problem.cases]
        assert lengths == [2, *range(3, 18)]
        assert problem.space.names == open_task("livecodebench", tmp_path).rewards

    def test_contests_are_split_by_date_and_problems_without_tests_left_out(self, tmp_path):
        large = json.dumps(listed([("1" * 9000, "2")], "stdin"))
        rows = [lcb_row(1), lcb_row(2, contest_date="2025-02-01T00:00:00")]
        rows += [lcb_row(3, "stdin", public_test_cases=large, private_test_cases=large)]
        write(tmp_path / "test6.jsonl", rows)
        pools = open_task("livecodebench", tmp_path).pools
        assert {split: [p.slug for p in pool] for split, pool in pools.items()} == {
            Split.TRAIN: ["livecodebench-abc1-a"],
            Split.TEST: ["livecodebench-abc2-a"],
        }

    def test_fractions_have_a_tolerance_and_integers_none(self, tmp_path, strongest):
        pairs = [("[1]\n1", "[2.5]"), ("[2]\n1", "[1000000000000000001]")]
        row = lcb_row(public_test_cases=json.dumps(listed(pairs, "functional")), private_test_cases="[]")
        task, problem = one("livecodebench", tmp_path, row, strongest)
        near = "def addAll(nums, k):\n    return [2.5 + 1e-12] if nums == [1] else [10 ** 18]\n"
        assert task.score([(problem, [near])]) == [[(1, 0)]]

    def test_a_pickle_bomb_is_not_loaded(self, tmp_path):
        fired = tmp_path / "fired"

        class Bomb:
            def __reduce__(self):
                return fired.touch, ()

        for bomb in (Bomb(), [json.dumps([])], {"a": "b"}, b"bytes", 10**400, ("a", "b")):
            text = base64.b64encode(zlib.compress(pickle.dumps(bomb))).decode()
            message = refused("livecodebench", tmp_path, [lcb_row(private_test_cases=text)])
            assert "test.jsonl:1 private_test_cases: " in message
            assert "the pickle contains" in message
        assert not fired.exists()

    @pytest.mark.parametrize("protocol", range(1, 6))
    def test_texts_are_read_like_pickle(self, protocol):
        for text in ("", "x", "é \x00 ☃ 𝕊" * 100, "a" * 70_000):
            data = pickle.dumps(text, protocol)
            assert pickle.load(io.BytesIO(data)) == text
            assert livecodebench._unpacked(base64.b64encode(zlib.compress(data)).decode()) == text

    def test_an_oversized_archive_is_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr(livecodebench, "MAX_UNPACKED_BYTES", 1 << 20)
        large = packed(" " * (1 << 21))
        assert "more than 1048576 bytes" in refused("livecodebench", tmp_path, [lcb_row(private_test_cases=large)])

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"private_test_cases": "!!"}, "private_test_cases: expected a list of tests as JSON, plain or packed"),
            ({"private_test_cases": base64.b64encode(b"no").decode()}, "plain or packed: zlib"),
            ({"private_test_cases": packed([])[:-8]}, "private_test_cases: "),
            ({"private_test_cases": packed({"a": 1})}, "expected a list of tests"),
            ({"private_test_cases": packed([{"input": 1}])}, "private_test_cases.0.input: expected a text"),
            ({"public_test_cases": json.dumps(listed([("x", "1")], "guess"))}, "public_test_cases.0.testtype"),
            ({"public_test_cases": json.dumps(listed([("1\n2", "1")], "stdin"))}, "tests of one testtype"),
            ({"public_test_cases": json.dumps(listed([("NaN", "1")], "functional"))}, "public_test_cases.0: "),
            ({"public_test_cases": json.dumps(listed([("1", "1e999")], "functional"))}, "public_test_cases.0: "),
            ({"metadata": "{}"}, "metadata: expected JSON with the name of a function"),
            ({"metadata": '{"func_name": "a b"}'}, "metadata: expected JSON with the name of a function"),
            ({"starter_code": "class Solution:\n    pass"}, "starter_code: expected a line such as 'def addAll"),
            ({"contest_date": "soon"}, "contest_date: expected a date"),
            ({"question_content": "x" * 10_000_000}, "question_content: 10000000 characters"),
        ],
    )
    def test_a_bad_row_is_refused_with_file_line_and_field(self, tmp_path, changes, message):
        text = refused("livecodebench", tmp_path, [lcb_row(1), lcb_row(2, **changes)])
        assert text.startswith("test.jsonl:2 ")
        assert message in text
        assert len(text) < 300


@pytest.mark.parametrize("method", ["vpo", "grpo"])
def test_padding_missing_rewards_with_zeros_changes_no_advantage(method):
    """The trainer pads the rewards of problems that have fewer tests than their task has rewards."""
    rng = np.random.default_rng(3)
    m = 3 if method == "vpo" else 1
    rewards = rng.integers(0, 2, size=(8, m, 4)).astype(float)
    padded = np.concatenate([rewards, np.zeros((8, m, 12))], axis=2)
    config = EstimatorConfig(draws=20_000) if method == "vpo" else EstimatorConfig()
    values = [
        ESTIMATORS[method](each, np.zeros(8, dtype=np.int64), config=config, rng=np.random.default_rng(0))
        for each in (rewards, padded)
    ]
    assert values[0] == pytest.approx(values[1], abs=0.05)
