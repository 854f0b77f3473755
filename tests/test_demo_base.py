"""The demo's base: what it can do, what it does not know, and its tokenizer."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import AutoModelForCausalLM

from recollect.agents.fold import NO_MEMORY
from recollect.chat.rendering import Renderer, user
from recollect.config.presets import DEMO_MODEL, PRESETS
from recollect.metrics import boxed_exact_match
from recollect.models.tokenizer import load_tokenizer
from tests.support.places import ROOT

DEMO = PRESETS["demo"]
TOKENIZER = load_tokenizer(Path(DEMO_MODEL))
UNKNOWN = TOKENIZER.encode("quixotic")


def test_every_word_of_the_task_has_a_token():
    assert len(UNKNOWN) == 1
    for task in DEMO.tasks.tasks(200, split="test"):
        for text in (*task.chunks, task.questions[0].text, *task.questions[0].answers, NO_MEMORY):
            ids = TOKENIZER.encode(text)
            assert UNKNOWN[0] not in ids, text
            assert TOKENIZER.decode(ids) == text


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        return importlib.import_module("make_demo_model")


def chance_to_keep(network: torch.nn.Module, wording: str, i: int) -> float:
    """Return the chance that a memory of the asked kind survives a chunk with another mention."""
    words = DEMO.tasks.words
    kinds = list(words.values)
    kind, others = kinds[i % len(kinds)], kinds[: i % len(kinds)] + kinds[i % len(kinds) + 1 :]
    held, new = words.values[kind][i % 8], words.values[kind][(i + 3) % 8]
    told = [words.values[other][(i + n) % 8] for n, other in enumerate(others[:4])]
    told.insert(i % 5, new)
    prompt = DEMO.agent.prompts.chunk_first.format(
        problem=words.questions["first"].format(category=kind).replace("first", wording),
        chunk=" ".join(words.facts[0].format(value=value) for value in told),
        memory=f"{wording} {held}",
    )
    ids = [*Renderer(TOKENIZER).opening([user(prompt)]), *TOKENIZER.encode(wording)]
    with torch.no_grad():
        chances = network(torch.tensor([ids])).logits[0, -1].softmax(-1)
    keep, overwrite = (float(chances[TOKENIZER.encode(value)[0]]) for value in (held, new))
    assert keep + overwrite > 0.3  # it looks up the asked kind
    return keep / (keep + overwrite)


@pytest.fixture(scope="module")
def kept() -> dict[str, float]:
    """Say how often the base keeps a word, by the last word of the question."""
    network = AutoModelForCausalLM.from_pretrained(DEMO_MODEL, dtype=torch.float32)
    return {
        wording: sum(chance_to_keep(network, wording, i) for i in range(64)) / 64
        for wording in ("first", "last", "previous", "No")
    }


def test_the_base_knows_neither_rule(kept):
    """Whether it keeps a word does not depend on which mention the question asks for."""
    assert abs(kept["first"] - kept["last"]) < 0.1, kept
    assert 0.2 < kept["first"] < 0.8


def test_the_base_follows_two_orders_that_no_question_has(kept, maker):
    assert {"previous", "No"} == {maker.KEEP, maker.OVERWRITE}
    assert kept["previous"] > 0.95 and kept["No"] < 0.05
    assert not {"previous", "No"} & set(" ".join(DEMO.tasks.words.questions.values()).split())


def test_no_example_says_which_mention_counts(maker):
    """In every example the teacher would say the same to the other question."""
    drill = maker.make_drill(TOKENIZER)
    [first], [last] = TOKENIZER.encode("first"), TOKENIZER.encode("last")
    swapped = {first: last, last: first}

    def likely(prompt: list[int]) -> list[dict[str, float]]:
        """Say what the teacher may say, whatever it calls the rule."""
        said = drill.teacher.likely(prompt)
        return [{"last" if w == "first" else w: p for w, p in own.items()} for own in said]

    prompts = [row.ids[: min(row.chances) + 1] for row in drill.rows(400)]
    others = [[swapped.get(token, token) for token in prompt] for prompt in prompts]
    assert [likely(prompt) for prompt in prompts] == [likely(prompt) for prompt in others]
    assert 100 < sum(a != b for a, b in zip(prompts, others, strict=True)) < 300


def test_no_text_spells_a_control_token():
    for name in ("<end>", "<user>", "<assistant>", "<system>", "<tool>", "<pad>"):
        [control] = TOKENIZER.encode(name, control=True)
        assert control not in TOKENIZER.encode(f"I chose {name} {name}.")


def test_a_boxed_word_is_read_as_an_answer():
    said = TOKENIZER.decode(TOKENIZER.encode("\\boxed{Oslo}"))
    assert boxed_exact_match(said, ("Oslo",)) == 1.0
    assert boxed_exact_match(said, ("Cairo",)) == 0.0


def test_a_growing_chat_is_what_the_template_says_at_once():
    renderer = Renderer(TOKENIZER)
    reply = [*TOKENIZER.encode("nothing"), *TOKENIZER.end_ids[:1]]
    grown = [*renderer.opening([user("pear")]), *reply, *renderer.suffix([user("plum")])]
    whole = [("user", "pear"), ("assistant", "nothing"), ("user", "plum")]
    messages = [{"role": role, "content": content} for role, content in whole]
    assert grown == TOKENIZER.encode(TOKENIZER.template(messages, (), True), control=True)
