"""The demo's tokenizer: it knows every word of the task, and no text spells a control token."""

from __future__ import annotations

from pathlib import Path

from recollect.agents.fold import NO_MEMORY
from recollect.chat.rendering import Renderer, user
from recollect.config.presets import DEMO_MODEL, PRESETS
from recollect.metrics import boxed_exact_match
from recollect.models.tokenizer import load_tokenizer

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
