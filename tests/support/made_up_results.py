"""Made-up results in every shape a report must show, hostile model text included."""

from __future__ import annotations

from itertools import combinations
from random import Random

from recollect.evaluation.results import (
    Cell,
    Comparison,
    Cost,
    Estimate,
    Example,
    JudgeError,
    JudgeKind,
    Results,
)
from recollect.metrics import wilson

AGENTS = ("full_context", "closed_book", "rag", "oracle", "fold", "rolling", "bank")
LENGTHS = {"7k": 7_000, "28k": 28_069, "112k": 112_227, "448k": 451_415}
HOSTILE = (
    '<script>alert("x")</script> <img src=x onerror=alert(1)> ]]> &amp; "quotes" \'single\'\n'
    "```\n# not a heading\n```\n| not | a | row |\n\x00\x1b[31m\u202egnp.exe \\boxed{<b>5</b>}"
)


def score(share: float, n: int = 128, failed: int = 0) -> Estimate:
    right = round(share * n)
    low, high = wilson(right, n)
    return Estimate(right / n, low, high, n, failed, n, "wilson", max(1, n // 4))


def share(agent: str, tokens: float, random: Random) -> float:
    start = {"oracle": 0.86, "closed_book": 0.07, "rag": 0.66, "fold": 0.71, "bank": 0.63}
    loss = {"full_context": 0.13, "rag": 0.03, "fold": 0.02, "rolling": 0.06, "bank": 0.03}
    doublings = max(0.0, (tokens / 7_000)) ** 0.5 - 1
    value = start.get(agent, 0.74) - loss.get(agent, 0.0) * doublings + random.gauss(0, 0.02)
    return min(1.0, max(0.0, value))


def cell(task: str, family: str, agent: str, tokens: float, random: Random, metric: str) -> Cell:
    main = score(share(agent, tokens, random), failed=3 if agent == "rolling" else 0)
    reads = agent in ("fold", "rolling", "bank")
    shown = {"full_context": tokens, "closed_book": 80, "rag": 5_100, "oracle": 450}
    cost = Cost(
        episodes=128,
        questions=128,
        build_read=round(128 * tokens * 1.3) if reads else 0,
        build_written=round(128 * tokens / 5_000 * 310) if reads else 0,
        build_calls=round(128 * tokens / 5_000) if reads else 0,
        answer_read=round(128 * shown.get(agent, 700)),
        answer_written=128 * 41,
        answer_calls=128,
        seconds=128 * (0.8 + tokens / 9_000 * (1.0 if reads else 0.2)),
        memory_tokens=tokens if agent == "rag" else 412.0 if reads else 0.0,
        memory_chars=1_800.0 if reads else 0.0,
        dollars=128 * (tokens if reads or agent == "full_context" else 900) * 4e-7,
    )
    beside = (*OTHERS, *PUBLISHED[family])
    others = {name: score(main.mean * random.uniform(0.6, 1.1) * 0.9) for name in beside}
    axes = {
        "position": {p: score(main.mean * f, 43) for p, f in (("last", 0.96), ("first", 1))},
        "category": {c: score(main.mean * f, 64) for c, f in (("bridge", 0.9), ("comparison", 1))},
    }
    seeds = {"0": main.mean - 0.02, "1": main.mean, "2": main.mean + 0.02}
    failures = {"policy: APITimeoutError": 2, "agent: ContextFull": 1} if main.n_failed else {}
    return Cell(
        task,
        family,
        agent,
        metric,
        {metric: main, **others},
        seeds,
        0.02,
        score(0.07),
        axes,
        cost,
        failures,
        tokens,
        tokens * 4.2,
        PUBLISHED[family],
        agent == "oracle",
    )


OTHERS = ("exact_match", "boxed_exact_match", "token_f1", "rouge_l")
PUBLISHED = {
    "hotpotqa": ["hotpotqa_em", "hotpotqa_f1", "memagent_sub_em"],
    "ruler:niah_multikey_1": ["ruler_recall"],
    "locomo": ["locomo_f1"],
}


def results(seed: int = 0) -> Results:
    random = Random(seed)
    cells = [
        cell(f"{family}@{name}", family, agent, tokens, random, metric)
        for family, metric in (
            ("hotpotqa", "answer_match"),
            ("ruler:niah_multikey_1", "answer_match"),
        )
        for name, tokens in LENGTHS.items()
        for agent in AGENTS
    ]
    cells += [cell("locomo", "locomo", agent, 24_500, random, "answer_overlap") for agent in AGENTS]
    tasks = list(dict.fromkeys(c.task for c in cells))
    comparisons = []
    for task in tasks:
        means = {c.agent: c.scores[c.primary].mean for c in cells if c.task == task}
        for first, second in combinations(means, 2):
            d = means[first] - means[second]
            p = max(0.00001, 1 - abs(d) * 9)
            comparisons.append(
                Comparison(task, "x", first, second, d, d - 0.08, d + 0.08, p, min(1.0, 3 * p), 128)
            )
    examples = [
        Example(
            "hotpotqa@7k",
            "fold",
            "hotpotqa@7k|fold|0|17",
            "Which river?",
            ["the Rhine", "Rhine"],
            HOSTILE,
            0.0,
            category="bridge",
            memory=HOSTILE[::-1],
            others=1.0,
        ),
        Example(
            "hotpotqa@7k",
            "rolling",
            "hotpotqa@7k|rolling|0|3",
            HOSTILE,
            ["Ada"],
            "",
            0.0,
            failure="policy: APITimeoutError: <b>no</b> answer in 60 s",
        ),
        Example(
            "locomo",
            "rag",
            "locomo|rag|1|9",
            "When did Caroline go to the group?",
            ["7 May 2023"],
            "She went in May, I believe. \\boxed{May}",
            0.4,
            category="temporal",
            others=1.0,
        ),
    ]
    judge = JudgeError(
        "qwen3-30b-a3b",
        "9f2c61d0aa",
        0.0,
        score(0.04, 150),
        score(0.02, 150),
        [JudgeKind("paraphrase", True, 74, 75), JudgeKind("vague", False, 5, 75)],
    )
    return Results(
        command="recollect eval --tasks hotpotqa@7k,28k,112k,448k"
        " ruler:niah_multikey_1@7k,28k,112k,448k locomo"
        f" --agents {','.join(AGENTS)} --model http://localhost:8000/v1 --n 128 --seeds 3",
        created="2026-11-16T00:30:00+00:00",
        model={"id": "Qwen/Qwen2.5-7B-Instruct", "url": "local", "temperature": 0.7},
        config={"n": 128, "seeds": 3, "agents": {"fold": {"chunk_size": 5000}}, "note": HOSTILE},
        versions={"recollect": "0.1.0", "python": "3.11.9", "commit": "0123abc"},
        data={task: f"{i:032x}" for i, task in enumerate(tasks)},
        cells=cells,
        comparisons=comparisons,
        examples=examples,
        judge=judge,
        seconds=5_431.2,
    )
