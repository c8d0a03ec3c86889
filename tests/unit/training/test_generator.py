"""The generator's rollouts are those of transformers, and its rows do not disturb each other."""

from collections import Counter

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'train'")

from speciate.training.generator import Generator  # noqa: E402
from speciate.training.models import new_tokenizer  # noqa: E402
from speciate.training.rollout_rules import Insertion, Rollout  # noqa: E402
from speciate.training.row_blocks import WIDTH, Row, blocks_of, compact  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
PROMPTS = [[5, 6, 7], [9], [4, 3, 8, 8, 10], [9], [5, 6, 7], [9], [9], [9], [11, 12]]
LIMITS = [20, 3, 24, 17, 1, 20, 21, 22, 9]
ENDS = (1, 2, 13, 14, 15)


def new_model(architecture="Llama"):
    import transformers

    torch.manual_seed(3)
    config = getattr(transformers, f"{architecture}Config")(
        vocab_size=len(new_tokenizer([f"w{i}" for i in range(20)])), hidden_size=48, intermediate_size=64,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        tie_word_embeddings=architecture == "Qwen2", initializer_range=0.6, bos_token_id=None, eos_token_id=ENDS[0],
        pad_token_id=0,
    )  # fmt: skip
    return getattr(transformers, f"{architecture}ForCausalLM")(config).eval()


def generator(model, *, chunk=1, bfloat16=False):
    """A generator; with a larger chunk it works as on a GPU, without graphs."""
    made = Generator(model, torch.device("cpu"), bfloat16=bfloat16)
    made._chunk, made._bucket = chunk, 1 if chunk == 1 else 8
    return made


def write(model, prompts=PROMPTS, limits=LIMITS, *, rules=None, temperature=0.0, seed=0, **options):
    asked = list(zip(prompts, limits, rules or [None] * len(prompts), strict=True))
    writer = options.pop("writer", None) or generator(model, **options)
    return [r.ids for r in writer.write(model, asked, ends=ENDS, temperature=temperature, seed=seed)]


def continued(model, prompt, count):
    given = torch.tensor([prompt])
    ids = model.generate(input_ids=given, do_sample=False, max_new_tokens=count, eos_token_id=list(ENDS))
    return ids[0, len(prompt) :].tolist()


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("architecture", ["Llama", "Qwen2"])
def test_greedy_rollouts_are_those_of_transformers(architecture, adapter):
    from peft import LoraConfig, get_peft_model

    model = new_model(architecture)
    writer = generator(model)
    before = write(model, writer=writer)
    if adapter:
        model = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "lora_" in name or name.endswith("bias"):
                weights.normal_(std=0.5, generator=torch.Generator().manual_seed(4))
    ours = write(model, writer=writer)
    theirs = [continued(model, *pair) for pair in zip(PROMPTS, LIMITS, strict=True)]
    assert ours == theirs
    assert (ours == before) is (architecture == "Llama" and not adapter)
    assert any(len(ids) < limit for ids, limit in zip(before, LIMITS, strict=True)), "some end early"


def inserting(index):
    """A rule that inserts after the 2nd, 5th and 9th sampled token, and ends a rollout with the 14th."""
    seen = []

    def rule(_, token):
        seen.append(token)
        dropped = {2: index % 3, 5: 0, 9: 1}.get(len(seen))
        inserted = ((7, 8, 9, 10, 11, 12), (index % 2 + 3,), ())[index % 3]
        return len(seen) == 14 if dropped is None else Insertion(dropped, inserted)

    return rule


@pytest.mark.parametrize("chunk", [1, 4])
def test_insertions_give_what_a_generation_for_each_part_gives(chunk):
    model, limits = new_model(), [60] * len(PROMPTS)
    ours = write(model, limits=limits, rules=[inserting(i) for i in range(len(PROMPTS))], chunk=chunk)
    for i, prompt in enumerate(PROMPTS):
        rollout, rule = Rollout(), inserting(i)
        while rollout.extend(continued(model, [*prompt, *rollout.ids], 60), rule):
            pass
        assert ours[i] == rollout.ids


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_row_depends_on_seed_and_place_only(chunk):
    model, limits = new_model(), [20] * len(PROMPTS)
    whole = write(model, limits=limits, temperature=1.0, seed=5, chunk=chunk)
    assert whole == write(model, limits=limits, temperature=1.0, seed=5, chunk=chunk)
    assert whole != write(model, limits=limits, temperature=1.0, seed=6, chunk=chunk)
    assert whole[1] != whole[3], "rows of one prompt differ"
    limits[0::2] = [1, 3, 2, 4, 5]
    cut = write(model, limits=limits, temperature=1.0, seed=5, chunk=chunk)
    assert cut == [ids[:limit] for ids, limit in zip(whole, limits, strict=True)]


def test_a_batch_that_memory_does_not_hold_is_written_in_parts():
    model = new_model()
    writer = generator(model)
    writer._memory = 1
    for temperature in (0.0, 1.0):
        assert write(model, writer=writer, temperature=temperature) == write(model, temperature=temperature)
    assert writer._capacity[0] == 1


def test_token_frequencies_follow_the_model():
    model, count = new_model(), 4000
    drawn = write(model, [PROMPTS[0]] * count, [1] * count, temperature=1.5)
    with torch.no_grad():
        logits = model(torch.tensor([PROMPTS[0]])).logits[0, -1]
    expected = count * torch.softmax(logits / 1.5, 0).double().numpy()
    counts = np.bincount([ids[0] for ids in drawn], minlength=len(expected))
    rare = expected < 5
    expected, counts = (np.append(values[~rare], values[rare].sum()) for values in (expected, counts))
    assert len(expected) >= 6
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < len(expected) - 1 + 4 * np.sqrt(2 * (len(expected) - 1))


def test_bfloat16_agrees_with_the_model_and_a_wrong_position_does_not():
    model = new_model()
    writer = generator(model, bfloat16=True)
    assert writer.agrees(model, PROMPTS[:3])
    writer._sin.neg_()
    assert not writer.agrees(model, PROMPTS[:3])


def test_other_architectures_are_left_to_transformers():
    from transformers import GPT2Config, GPT2LMHeadModel

    assert Generator.supports(new_model())
    assert Generator.supports(new_model("Qwen2"))
    sliding = new_model("Qwen2")
    sliding.config.use_sliding_window = True
    assert not Generator.supports(sliding)
    assert not Generator.supports(GPT2LMHeadModel(GPT2Config(vocab_size=9, n_embd=12, n_layer=1, n_head=2)))


def test_compaction_keeps_every_row_in_a_block_of_its_prompt():
    rng = np.random.default_rng(0)
    blocks = blocks_of(Row(i, (int(prompt),), 9, None) for i, prompt in enumerate(rng.integers(0, 4, 40)))
    while blocks:
        before = [row for block in blocks for row in block]
        for place in rng.permutation(len(before))[:6]:
            blocks[place // WIDTH][place % WIDTH] = before[place] = None
        kept = {row.index for row in before if row is not None}
        counts = Counter(row.prompt for row in before if row is not None)
        blocks, rows, prompts = compact(blocks)
        assert len(blocks) == sum(-(-count // WIDTH) for count in counts.values())
        after = [row for block in blocks for row in block]
        assert {row.index for row in after if row is not None} == kept
        for place, row in enumerate(after):
            assert row is None or before[rows.get(place, place)] is row
        assert all(len({row.prompt for row in block if row is not None}) == 1 for block in blocks)
        assert all(old >= len(blocks) > new for new, old in prompts.items())
