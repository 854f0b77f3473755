"""Rendering: the template's tokens, contents exactly, and nothing rendered twice."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.chat.rendering import Message, Renderer, system, token_array, tool, user
from recollect.errors import UserError
from tests.support.bytes_tokenizer import CONTROL, END, START, STOP, TH, ByteTokenizer, chatml

ROLES = ("system", "user", "tool")
texts = st.text(max_size=12)
spelling = st.sampled_from(["<|end|>", "<|start|>", "<|stop|>", "<|start|>system\n"])
hostile = st.lists(texts | spelling, max_size=4).map("".join)


def whole(tokenizer: ByteTokenizer, messages: list[tuple[str, str]], tools=()) -> list[int]:
    """Render a whole conversation at once."""
    plain = [{"role": role, "content": content} for role, content in messages]
    return tokenizer.encode(tokenizer.template(plain, tools, True), control=True)


def test_opening_equals_template_then_encode():
    tokenizer = ByteTokenizer()
    ids = Renderer(tokenizer).opening([system("be brief"), user("what is the time?")])
    assert ids == whole(tokenizer, [("system", "be brief"), ("user", "what is the time?")])
    assert ids[0] == START and ids.count(END) == 2


def test_tools_are_shown_once_and_only_at_the_opening():
    tokenizer = ByteTokenizer()
    renderer = Renderer(tokenizer)
    assert renderer.opening([user("hi")], ["search"]) == whole(
        tokenizer, [("user", "hi")], ["search"]
    )
    assert renderer.opening([user("hi")]) == whole(tokenizer, [("user", "hi")])
    assert "search" not in tokenizer.show(renderer.suffix([tool("found")], ["search"]))


def test_skeletons_are_kept_apart():
    """The cache of template text never confuses roles, tools, place or closing."""
    tokenizer = ByteTokenizer()
    renderer = Renderer(tokenizer)
    calls = [
        lambda r: r.opening([user("a")]),
        lambda r: r.opening([system("a")]),
        lambda r: r.opening([user("a")], ["t"]),
        lambda r: r.opening([user("a")], ["u"]),
        lambda r: r.suffix([user("a")]),
        lambda r: r.suffix([user("a")], closed=False),
        lambda r: r.opening([user("a"), user("b")]),
    ]
    results = [call(renderer) for call in calls]
    assert len({tuple(ids) for ids in results}) == len(calls)
    assert [call(renderer) for call in calls] == results
    assert [call(Renderer(tokenizer)) for call in calls] == results


@given(
    opening=st.lists(st.tuples(st.sampled_from(ROLES), texts), min_size=1, max_size=3),
    rounds=st.lists(
        st.tuples(
            texts, st.lists(st.tuples(st.sampled_from(ROLES), texts), min_size=1, max_size=2)
        ),
        max_size=4,
    ),
)
def test_growing_equals_rendering_at_once(opening, rounds):
    """Suffix by suffix gives what the whole conversation gives, if replies end by themselves."""
    tokenizer = ByteTokenizer()
    renderer = Renderer(tokenizer)
    ids = renderer.opening([Message(role, (text,)) for role, text in opening])
    said = list(opening)
    for reply, following in rounds:
        ids += [*tokenizer.encode(reply), END]
        ids += renderer.suffix([Message(role, (text,)) for role, text in following])
        said += [("assistant", reply), *following]
        assert ids == whole(tokenizer, said)


def test_cut_reply_gets_its_end_token():
    tokenizer = ByteTokenizer()
    renderer = Renderer(tokenizer)
    closed = renderer.suffix([user("go on")], closed=True)
    assert renderer.suffix([user("go on")], closed=False) == [END, *closed]
    assert tokenizer.show(closed) == "\n<|start|>user\ngo on<|end|>\n<|start|>assistant\n"


def test_the_end_token_is_not_doubled_when_it_is_not_the_usual_one():
    """A model may end turns with another token than its tokenizer's end of text (Gemma does)."""
    renderer = Renderer(ByteTokenizer(end_ids=(STOP, END)))
    shown = renderer.tokenizer.show(renderer.suffix([user("x")]))
    assert shown.startswith("\n<|start|>user")
    assert renderer.suffix([user("x")], closed=False)[0] == END


def test_white_space_before_the_end_token_goes_with_it():
    """Llama-2 writes a space between a reply and its end; after a sampled end it has no place."""

    def spaced(messages, tools, prompt):
        turns = (f"[{m['content']}]" if m["role"] == "user" else m["content"] for m in messages)
        return " <|end|>".join(turns)

    renderer = Renderer(ByteTokenizer(template=spaced))
    assert renderer.tokenizer.show(renderer.suffix([user("x")])) == "[x]"
    assert renderer.tokenizer.show(renderer.suffix([user("x")], closed=False)) == " <|end|>[x]"


def test_template_without_end_token_is_left_alone():
    def lines(messages, tools, prompt):
        return "".join(f"{m['role']}: {m['content']}\n" for m in messages)

    renderer = Renderer(ByteTokenizer(template=lines))
    assert renderer.tokenizer.show(renderer.suffix([user("<|end|>")])) == "\nuser: <|end|>\n"


def test_an_end_token_further_on_is_not_taken_for_the_replys():
    def ended_by_users(messages, tools, prompt):
        ends = {"user": "<|end|>", "assistant": ""}
        return "".join(f"{m['role']}: {m['content']}{ends[m['role']]}\n" for m in messages)

    renderer = Renderer(ByteTokenizer(template=ended_by_users))
    assert renderer.tokenizer.show(renderer.suffix([user("x")])) == "\nuser: x<|end|>\n"


def test_tools_come_again_where_the_template_says_so():
    """Mistral shows the tools before the latest message of the user."""

    def tools_last(messages, tools, prompt):
        *earlier, last = messages
        return chatml(earlier, (), False) + f"[{''.join(tools)}]" + chatml([last], (), prompt)

    renderer = Renderer(ByteTokenizer(template=tools_last))
    assert "[search]" in renderer.tokenizer.show(renderer.suffix([user("x")], ["search"]))


@given(contents=st.lists(hostile, min_size=1, max_size=4))
def test_contents_never_become_control_tokens(contents):
    tokenizer = ByteTokenizer()
    renderer = Renderer(tokenizer)
    messages = [user(content) for content in contents]
    harmless = [user("x") for _ in contents]
    for render in (renderer.opening, renderer.suffix):
        control = [i for i in render(messages) if i in CONTROL]
        assert control == [i for i in render(harmless) if i in CONTROL]
        for content in contents:
            assert content in tokenizer.show(render(messages))


def test_token_parts_are_spliced_exactly():
    tokenizer = ByteTokenizer()
    apart = list(b"th")  # what "th" would never encode to
    assert tokenizer.encode(tokenizer.decode(apart)) == [TH]
    ids = Renderer(tokenizer).opening([user("a", apart, "b", [], "th")])
    shown = tokenizer.encode("<|start|>user\n", control=True)
    assert ids[len(shown) :][:5] == [ord("a"), *apart, ord("b"), TH]
    assert ids[len(shown) + 5] == END


@pytest.mark.parametrize("bad", [[260], [3, -1, 5], [10**9]])
def test_ids_outside_the_vocabulary_are_refused(bad):
    wrong = next(i for i in bad if not 0 <= i < 260)
    with pytest.raises(ValueError, match=f"token id {wrong} is outside the vocabulary of 260"):
        Renderer(ByteTokenizer()).opening([user("text", bad)])


@pytest.mark.parametrize("bad", [1.5, "a", None, 1 << 63, -(1 << 63) - 1])
def test_what_is_no_token_id_is_refused(bad):
    with pytest.raises(ValueError, match=re.escape(f"{bad!r} is not a token id")):
        Renderer(ByteTokenizer()).opening([user("text", [3, bad, 5])])


def test_token_ids_may_be_any_whole_numbers():
    given = [True, np.int32(7), 5, (1 << 63) - 1, -(1 << 63)]
    assert token_array(given).tolist() == [1, 7, 5, (1 << 63) - 1, -(1 << 63)]
    assert token_array(np.array([2, 3], dtype=np.uint16)).tolist() == [2, 3]
    assert token_array(()).dtype == np.int64 and not len(token_array([]))


def test_marks_in_contents_are_ordinary_text():
    """A content that spells our own place marks is not taken for one."""
    tokenizer = ByteTokenizer()
    ids = Renderer(tokenizer).opening([user("\u29830\u2984"), user("\u29831\u2984")])
    assert ids == whole(tokenizer, [("user", "\u29830\u2984"), ("user", "\u29831\u2984")])


def dropping(messages, tools, prompt):
    return chatml([m for m in messages if m["role"] != "tool"], tools, prompt)


def system_last(messages, tools, prompt):
    return chatml(sorted(messages, key=lambda m: m["role"] == "system"), tools, prompt)


def twice(messages, tools, prompt):
    return chatml([*messages, messages[-1]], tools, prompt)


@pytest.mark.parametrize(
    ("template", "messages"),
    [
        (dropping, [user("a"), tool("b")]),
        (system_last, [system("a"), user("b")]),
        (twice, [user("a")]),
    ],
)
def test_templates_that_drop_reorder_or_repeat_messages_are_refused(template, messages):
    renderer = Renderer(ByteTokenizer(template=template))
    with pytest.raises(UserError, match="chat template") as error:
        renderer.opening(messages)
    assert messages[0].role in str(error.value) and error.value.fix


def test_template_that_drops_a_message_of_a_suffix_is_refused():
    with pytest.raises(UserError, match="chat template"):
        Renderer(ByteTokenizer(template=dropping)).suffix([tool("b")])


def test_template_that_hides_replies_is_refused():
    def hides(messages, tools, prompt):
        return chatml([m for m in messages if m["role"] != "assistant"], tools, prompt)

    with pytest.raises(UserError, match="chat template"):
        Renderer(ByteTokenizer(template=hides)).suffix([user("b")])


def forgetful(messages, tools, prompt):
    """Rewrite all but the last assistant message, as templates of thinking models do."""
    kept = []
    for i, message in enumerate(messages):
        content = message["content"]
        if message["role"] == "assistant" and i < len(messages) - 1:
            content = content.rpartition("</think>")[2]
        kept.append({**message, "content": content})
    return chatml(kept, tools, prompt)


def test_templates_that_rewrite_old_turns_have_no_effect():
    thoughts = "<think>hard</think>seven"
    rewriting, plain = (ByteTokenizer(template=t) for t in (forgetful, chatml))
    told = [("user", "a"), ("assistant", thoughts), ("user", "b")]
    assert whole(rewriting, told) != whole(plain, told)  # so this template does rewrite
    ids = Renderer(rewriting).opening([user("a")])
    ids += [*rewriting.encode(thoughts), END]
    assert ids + Renderer(rewriting).suffix([user("b")]) == whole(plain, told)


def test_text_joins_parts_for_people():
    renderer = Renderer(ByteTokenizer())
    assert renderer.text(user("a ", list(b"th"), [TH, END], "!")) == "a thth!"
