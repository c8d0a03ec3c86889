"""Rules end rollouts and write into them; what a pass of the trainer takes."""

import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from speciate.training.config import TrainConfig  # noqa: E402
from speciate.training.generator import Generator  # noqa: E402
from speciate.training.models import AT_ONCE, new_model, new_tokenizer  # noqa: E402
from speciate.training.rollout_rules import BlockRule, ClosingRule, Rollout  # noqa: E402
from tests.unit.inference.checkpoints import write_bytes  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
CLOSE, WORDS = "<|>", [f"w{i}" for i in range(12)]


@pytest.fixture(scope="module")
def tokenizer():
    return new_tokenizer([*WORDS, CLOSE])


@pytest.fixture
def model(tokenizer):
    made = new_model(tokenizer, seed=3)
    with torch.no_grad():
        for weights in made.parameters():
            weights.mul_(3.0)  # far from uniform, so that tokens differ in likelihood
    return made.eval()


def write_rollouts(model, asked, **options):
    return Generator(model, torch.device("cpu"), bfloat16=False).write(model, asked, **options)


def write(model, tokenizer, prompts, *, temperature=1.0, seed=0):
    close = tokenizer.convert_tokens_to_ids(CLOSE)
    ruled = [(ids, most, ClosingRule(close, answers) if answers > 1 else None) for ids, answers, most in prompts]
    rollouts = write_rollouts(model, ruled, ends=[tokenizer.eos_token_id], temperature=temperature, seed=seed)
    return [rollout.ids for rollout in rollouts]


def test_a_rollout_ends_with_its_last_answer(model, tokenizer):
    prompt, close = tokenizer("w0 w1")["input_ids"], tokenizer.convert_tokens_to_ids(CLOSE)
    with torch.no_grad():
        model.get_input_embeddings().weight[close] *= 2  # often drawn
    rollouts = write(model, tokenizer, [(prompt, 3, 60)] * 50 + [(prompt, 1, 9)] * 50)
    ended = [ids for ids in rollouts[:50] if ids[-1] == close]
    assert ended
    assert all(ids.count(close) == 3 for ids in ended)
    assert all(ids.count(close) < 3 for ids in rollouts[:50] if ids not in ended)
    assert all(len(ids) <= 9 for ids in rollouts[50:])
    assert any(
        ids[:-1].count(close) for ids in rollouts[50:]
    )  # with one answer the closing token does not end a rollout


def test_rules_end_rollouts_with_their_code_blocks():
    words = ["x", "\n", "```", "\ndef ", "python", "\ndef f(", "\n# "]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}))
    tokenizer.decoder = Fuse()

    def end(ids, answers, opening="```python\n"):
        rule = BlockRule(tokenizer, answers, opening)
        return next((place for place, token in enumerate(ids, 1) if rule(0, token)), None)

    one = [0, 1, 0, 1, 2]
    assert end(one, 1) == 5
    assert end([0, 3, 0], 1) is None
    function = "```python\ndef f():"
    assert end([0, 3, 0], 1, function) == 2
    assert end([0, 5, 0, 1, 2], 2, function) == 5  # a further version ends the first
    assert end([0, 6, 0, 5, 0, 1, 2], 2, function) == 7
    assert end([0, 3, 0, 1, 2], 2, function) is None
    two = [*one, 1, 2, 4, 1, 0, 1, 2]  # close, open, close
    assert end(two, 2) == len(two)
    assert end(two[:-1], 2) is None
    rule = BlockRule(tokenizer, 1, "```python\n")
    assert [rule(index, token) for index, token in [(0, 1), (1, 2), (0, 2), (1, 2)]] == [False, False, True, False]


def test_a_rule_belongs_to_its_prompt(model, tokenizer):
    prompts = [(tokenizer(text)["input_ids"], 1, 9) for text in ("w0 w1", "w0 w1", "w3")]
    free = write(model, tokenizer, prompts)
    ruled = [(ids, most, None if i == 2 else lambda _, __: True) for i, (ids, _, most) in enumerate(prompts)]
    ended = write_rollouts(model, ruled, ends=[tokenizer.eos_token_id], temperature=1.0, seed=0)
    assert [len(rollout.ids) for rollout in ended[:2]] == [1, 1]
    assert ended[2].ids == free[2]


@pytest.mark.parametrize("group", [8, 16, 24, 48])
def test_a_cpu_pass_takes_whole_groups_that_fit_its_cache(group, tmp_path):
    from dataclasses import replace

    from speciate.training.arguments import trl_arguments
    from speciate.training.tasks import GENERATED

    config = replace(TrainConfig.tiny("vpo", "maze"), group=group)
    args = trl_arguments(config, GENERATED["maze"], tmp_path)
    rows = args.per_device_train_batch_size
    assert rows % group == 0
    assert rows == group or rows <= AT_ONCE
    assert rows * args.gradient_accumulation_steps == config.batch


def test_all_padding_columns_are_trimmed():
    from speciate.training.trainer import trimmed

    prompt_mask = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    completion_mask = torch.tensor([[1, 0, 0], [1, 1, 0]])
    inputs = {
        "prompt_ids": torch.arange(8).reshape(2, 4),
        "prompt_mask": prompt_mask,
        "completion_ids": torch.arange(6).reshape(2, 3),
        "completion_mask": completion_mask,
        "ref_per_token_logps": torch.arange(6.0).reshape(2, 3),
        "advantages": torch.tensor([1.0, -1.0]),
        "num_items_in_batch": torch.tensor(3),
    }
    kept = trimmed(inputs)
    assert kept["prompt_ids"].tolist() == [[1, 2, 3], [5, 6, 7]]
    assert kept["prompt_mask"].tolist() == [[0, 1, 1], [1, 1, 1]]
    assert kept["completion_ids"].tolist() == [[0, 1], [3, 4]]
    assert kept["ref_per_token_logps"].tolist() == [[0, 1], [3, 4]]
    assert kept["advantages"] is inputs["advantages"]
    assert kept["num_items_in_batch"] is inputs["num_items_in_batch"]


@pytest.fixture(scope="module")
def scaffold_model(tmp_path_factory):
    """A model of bytes that ends its answers after some letters, and its tokenizer."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    folder = write_bytes(tmp_path_factory.mktemp("bytes"))
    return LlamaForCausalLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


OPENING = "```python\ndef solve(x):"
BETWEEN = "\n\ndef solve(x):"


def scaffolded(model, tokenizer, count=6, limit=12):
    prompt = tokenizer(OPENING)["input_ids"]
    rule = BlockRule(tokenizer.backend_tokenizer, 3, OPENING, end=tokenizer.eos_token_id, limit=limit)
    asked = [(prompt, rule.longest, rule)] * count
    return prompt, write_rollouts(model, asked, ends=[tokenizer.eos_token_id], temperature=1.0, seed=5)


def test_a_scaffold_writes_what_stands_between_answers(scaffold_model):
    model, tokenizer = scaffold_model
    _, rollouts = scaffolded(model, tokenizer)
    for rollout in rollouts:
        text = tokenizer.decode(rollout.ids)
        assert text.count("def solve(x):") == 2
        theirs = [i for i, ours in zip(rollout.ids, rollout.written, strict=True) if not ours]
        assert tokenizer.decode(theirs) in (BETWEEN * 2, BETWEEN + BETWEEN.lstrip("\n"), BETWEEN.lstrip("\n") * 2)
        assert sum(rollout.written) <= 3 * 12


@pytest.mark.parametrize(
    ("answer", "sampled", "written"),
    [
        ("\n return 1", "\n\ndef ", "solve(x):"),  # the policy's own begin of the next answer stays
        ("\n return 1", "\n```", "\ndef solve(x):"),
        ("\n return 1", "\nprint(", "\ndef solve(x):"),
        ("\n return 1  ", "<eos>", BETWEEN),
        ("\n 123456789", "", BETWEEN),  # at the limit
        ("", "<eos>", BETWEEN),
    ],
)
def test_the_end_of_an_answer_becomes_the_begin_of_the_next(scaffold_model, answer, sampled, written):
    tokenizer = scaffold_model[1]
    rule = BlockRule(
        tokenizer.backend_tokenizer, 2, OPENING, end=tokenizer.eos_token_id, limit=11 if not sampled else 40
    )
    rollout = Rollout()
    ids = tokenizer(answer + sampled)["input_ids"]
    assert rollout.extend(ids, rule, [-1.0] * len(ids))
    assert tokenizer.decode(rollout.ids) == answer.rstrip() + BETWEEN
    assert tokenizer.decode([i for i, ours in zip(rollout.ids, rollout.written, strict=True) if not ours]) == written
    assert [p == 0.0 for p in rollout.logprobs] == [not ours for ours in rollout.written]
    assert not rollout.extend(tokenizer("\n return 2\n```")["input_ids"], rule)
