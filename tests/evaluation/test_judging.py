"""What a judge is told, what becomes of its verdicts, and the answers it is measured on."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from recollect.errors import UserError
from recollect.evaluation.graders import LONGMEMEVAL, Graders, read_prompts
from recollect.evaluation.judge_pairs import PAIRS
from recollect.evaluation.judging import judge_episodes, measure_judge
from recollect.policies.cached import RemoteModel
from recollect.rewards.judge import ABSTENTION, JUDGE_PROMPT, RUBRICS, Judge, strict_judge
from tests.support.chat_server import chat_server


def record(id: str, *questions: dict, answers: list[str], failure=None) -> dict:
    kept = {"id": id, "task": "t", "questions": list(questions)}
    return {**kept, "answers": answers, "failure": failure}


def judged(judge: Judge, records: list[dict], *names: str) -> dict[tuple[str, int, str], float]:
    """Have records judged by some scores, our own if none is named."""
    return asyncio.run(judge_episodes(Graders(judge), records, {"t": names or ("judge",)}))


def grader(text: str) -> str:
    right = text.rpartition("Right answer: ")[2].partition("\n")[0]
    graded = text.rpartition("Answer to grade: ")[2]
    return '{"label": "CORRECT"}' if right in graded else '{"label": "WRONG"}'


def test_answers_are_judged_by_rubric_where_there_is_one():
    plain = {"text": "Where?", "answers": ["Oslo"]}
    points = {"rubric": ["Oslo", "Bergen", "Tromsø", "May"]}
    listed = {"text": "Where and when?", "answers": ["x"], "about": points}
    records = [
        record("a", plain, listed, answers=["\\boxed{Oslo}", "Oslo, Bergen, in May"]),
        record("b", plain, answers=["  "]),
        record("c", plain, answers=[], failure={"boundary": "policy"}),
    ]
    with chat_server(grader) as server:
        judge = strict_judge(RemoteModel(server.url))
        verdicts = judged(judge, records)
        # An empty answer needs no judge, a failed episode gets none.
        assert len(server.asked) == 1 + 4
    assert verdicts == {("a", 0, "judge"): 1.0, ("a", 1, "judge"): 0.75, ("b", 0, "judge"): 0.0}


def test_a_category_has_a_rubric_of_its_own():
    question = {"text": "Who?", "answers": ["unknown"], "category": ABSTENTION}
    with chat_server(grader) as server:
        judge = strict_judge(RemoteModel(server.url))
        judged(judge, [record("a", question, answers=["unknown"])])
        assert RUBRICS[ABSTENTION] in server.texts[0]
        assert all(
            rubric not in server.texts[0] for k, rubric in RUBRICS.items() if k != ABSTENTION
        )


def test_a_judge_that_fails_ends_the_judging():
    question = {"text": "Who?", "answers": ["Ada"]}
    with chat_server(lambda _text: 500) as server:
        judge = strict_judge(RemoteModel(server.url, retries=0))
        with pytest.raises(UserError, match="the judge at"):
            judged(judge, [record("a", question, answers=["Ada"])])


def test_the_labelled_answers_are_of_all_kinds_and_different():
    assert len({(p.question.text, p.answer) for p in PAIRS}) == len(PAIRS) >= 60
    kinds = Counter((p.kind, p.right) for p in PAIRS)
    assert kinds["vague", False] >= 10 and kinds["candidates", False] >= 5
    assert len({kind for kind, _right in kinds}) == len(kinds)  # a kind is right or wrong
    assert 20 <= sum(p.right for p in PAIRS) <= 45


def test_all_that_a_judge_is_told_names_it():
    model = RemoteModel("http://localhost:1/v1", "m")
    hashes = {
        Judge(model).prompt_hash,
        strict_judge(model).prompt_hash,
        Judge(model, JUDGE_PROMPT, {"x": "y"}).prompt_hash,
        Judge(model, JUDGE_PROMPT, {"x": "z"}).prompt_hash,
    }
    assert len(hashes) == 4
    assert strict_judge(RemoteModel("http://other/v1", "m")).prompt_hash in hashes


def test_a_perfect_judge_errs_never_and_says_how_sure_that_is():
    labels = {(p.question.text, p.answer): p.right for p in PAIRS}

    def knows(text: str) -> str:
        asked = text.rpartition("Question: ")[2].partition("\n")[0]
        right = labels[asked, text.rpartition("Answer to grade: ")[2]]
        return "CORRECT" if right else "WRONG"

    with chat_server(knows) as server:
        error = asyncio.run(measure_judge(strict_judge(RemoteModel(server.url))))
    assert error.false_accept.mean == error.false_reject.mean == 0
    assert 0.05 < error.false_accept.high < 0.15 and error.temperature == 0


def published_judge(text: str) -> str:
    """Say yes, give a point, or see the same event where the words of one are in the other."""
    if "Criterion: " in text:
        point = text.rpartition("Criterion: ")[2].partition("\n")[0]
        met = point in text.rpartition("Response: ")[2]
        return '{"score": 1.0}' if met else '{"score": 0.5}'
    if "First: " in text:
        first, _, second = text.rpartition("First: ")[2].partition("\nSecond: ")
        return '{"label": "CORRECT"}' if first in second else '{"label": "WRONG"}'
    if "Answer to grade: " in text:
        return grader(text)
    right = text.rpartition("Correct answer: ")[2].partition("\n")[0]
    return "Yes." if right in text.rpartition("Response: ")[2] else "No."


def test_longmemeval_has_a_prompt_for_every_type():
    asked = {"text": "When?", "answers": ["May"]}
    types = ("multi-session", "temporal-reasoning", "knowledge-update", ABSTENTION)
    records = [
        record(kind, asked | {"category": kind}, answers=["in \\boxed{May}"]) for kind in types
    ]
    with chat_server(published_judge) as server:
        judge = strict_judge(RemoteModel(server.url))
        found = judged(judge, records, "longmemeval_judge")
        assert found["multi-session", 0, "longmemeval_judge"] == 1.0
        assert len({text.partition("Question:")[0] for text in server.texts}) == len(types)
        own = {**LONGMEMEVAL, "default": "Mine: {question} {answer} {response}"}
        names = {"t": ["longmemeval_judge"]}
        with (
            chat_server(lambda _text: "hm") as other,
            pytest.raises(UserError, match="neither yes nor no"),
        ):
            wrong = Graders(strict_judge(RemoteModel(other.url, "other")), own)
            asyncio.run(judge_episodes(wrong, records[:1], names))
        assert other.texts[0].startswith("Mine: When? May May")


def test_beams_points_and_the_order_of_events():
    points = {"text": "What?", "answers": ["x"], "about": {"rubric": ["red", "blue", "green"]}}
    events = {"rubric": ["born", "moved", "married"]}
    order = {"text": "In which order?", "answers": ["x"], "about": events}
    order["category"] = "event_ordering"
    records = [
        record("a", points, order, answers=["red and blue", "born\nmarried\nmoved"]),
        record("b", points, order, answers=["grey", "sold a house"]),
    ]
    with chat_server(published_judge) as server:
        judge = strict_judge(RemoteModel(server.url))
        found = judged(judge, records, "judge", "beam_judge")
    # Half a point is cut off, as published.
    assert found["a", 0, "beam_judge"] == found["a", 0, "judge"] == pytest.approx(2 / 3)
    assert found["b", 0, "beam_judge"] == 0.0
    assert found["a", 1, "beam_judge"] == found["a", 1, "judge"] == pytest.approx(2 / 3)
    # Who names no event has ordered none, but earns something by the published rule.
    assert found["b", 1, "judge"] == 0.0 < found["b", 1, "beam_judge"] < 0.2


def test_prompts_are_read_from_a_file_or_refused(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text('{"default": "{question} {answer} {response}"}')
    assert read_prompts(path)["default"] == "{question} {answer} {response}"
    assert read_prompts(None) is LONGMEMEVAL
    for wrong in ("[]", "{}", '{"default": "{question}"}', "no JSON"):
        path.write_text(wrong)
        with pytest.raises(UserError, match=r"prompts\.json"):
            read_prompts(path)
