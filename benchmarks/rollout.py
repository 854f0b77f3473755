"""A fold's rollout on one GPU beside transformers' own generate, with a real model's weights.

Tasks of six chunks, sixteen rollouts each. generate gets the very prompts of some of the rollout's
turns, all rollouts in one batch, and the same limits. The bound is what reading weights and keys
once per token would take at the memory's full rate, a prefix that siblings share counted once.

    python scripts/convert_smollm2.py --out models/smollm2
    python benchmarks/rollout.py --model models/smollm2
    python -m benchmarks.rollout --model models/smollm2 --peer vllm   # see race

With `--peer vllm` the peer is vLLM at several settings, over three shapes of fixed lengths;
`--profile` (with `python -m`) says where the time goes.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from recollect.agents.fold import FoldAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer
from recollect.config.engine import ModelConfig
from recollect.metrics import METRICS
from recollect.models.model import LoadedModel, load_model
from recollect.rewards.answers import AnswerReward
from recollect.rollout import Group, Rollout
from recollect.sampler.choice import open_sampler
from recollect.sampler.dense_cache import keys_of
from recollect.sampler.paged import PagedPolicy
from recollect.types import Context, Question, Sampling, Task

BANDWIDTH = 4.8e12
"""Bytes per second of an H200's memory."""
WORDS = (
    "the of and to in is was for on as with by at from his her that it had are were which an be"
    " this has first one their after new who two but other city school team year known during"
    " film album north war state season world group company river house player town church book"
)


def make_tasks(count: int, chunks: int, words: int, seed: int) -> list[Task]:
    """Make texts of common words."""
    rng = random.Random(seed)
    text = lambda: " ".join(rng.choices(WORDS.split(), k=words))  # noqa: E731
    question = (Question("Which film is named after the river?", ("none",)),)
    return [
        Task(f"{seed}-{i}", tuple(text() for _ in range(chunks)), question) for i in range(count)
    ]


def measure(
    model: LoadedModel, policy: PagedPolicy, tasks: list[Task], options: argparse.Namespace
) -> tuple[list[Group], float]:
    """Time one rollout."""
    speaker = Model(policy, Renderer(model.tokenizer), True, Sampling(), model.window)
    agent = FoldAgent(
        chunk_size=None, max_memory_tokens=options.new_tokens, max_answer_tokens=options.new_tokens
    )
    models = {"memory": speaker, "answer": speaker}
    reward = AnswerReward(METRICS["sub_exact_match"])
    rollout = Rollout(agent, models, reward, options.tasks * options.group)
    torch.cuda.synchronize()
    started = time.perf_counter()
    groups: list[Group] = []

    async def run() -> None:  # asyncio.run would print a result to itself, at length
        groups.extend(await rollout.groups(tasks, options.group, (0, "bench")))

    asyncio.run(run())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    policy.reset()
    return groups, seconds


def generate(
    network: torch.nn.Module, contexts: Sequence[Context], model: LoadedModel, new_tokens: int
) -> tuple[int, float]:
    """Continue the prompts of one turn with transformers; return new tokens and seconds."""
    prompts = [context.ids[: context.turns[0].start] for context in contexts]
    longest = max(map(len, prompts))
    end = model.tokenizer.end_ids[0]
    ids = torch.tensor([[end] * (longest - len(p)) + list(p) for p in prompts]).cuda()
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts]).cuda()
    torch.cuda.synchronize()
    started = time.perf_counter()
    with torch.inference_mode():
        out = network.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=new_tokens, do_sample=True,
            temperature=1.0, top_p=1.0, top_k=0, eos_token_id=end, pad_token_id=end,
        )  # fmt: skip
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    new = out[:, longest:]
    ended = (new == end).int().cumsum(1)
    return int((ended - (new == end).int() == 0).sum()), seconds


def bound(model: LoadedModel, groups: list[Group]) -> float:
    """Return the seconds that reading alone would take, all rollouts in step with each other."""
    network = model.network
    embedded = network.get_input_embeddings().weight.numel()
    tied = network.config.get_text_config().tie_word_embeddings
    weights = 2 * (sum(p.numel() for p in network.parameters()) - (0 if tied else embedded))
    per_token = 2 * sum(value.numel() for _key, value in keys_of(model)) * 2
    turns = len(groups[0][0].contexts)
    total = 0.0
    for turn in range(turns):
        of_turn = [[e.contexts[turn] for e in group] for group in groups]
        steps = max(len(c.turns[0].token_ids) for own in of_turn for c in own)
        total += steps * weights
        for own in of_turn:
            prompts = [c.ids[: c.turns[0].start] for c in own]
            shared = 0
            while all(len(p) > shared and p[shared] == prompts[0][shared] for p in prompts):
                shared += 1
            lengths = [len(c.turns[0].token_ids) for c in own]
            total += max(lengths) * shared * per_token
            for prompt, new in zip(prompts, lengths, strict=True):
                total += new * (len(prompt) - shared + new / 2) * per_token
    return total / BANDWIDTH


def plain_network(path: str, dtype: torch.dtype) -> Any:
    """Load a model as transformers alone runs it."""
    network: Any = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=dtype,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )
    return network.cuda().eval()


def check(path: str, new_tokens: int = 64) -> str:
    """Compare greedy tokens in float32 with transformers' own."""
    model = load_model(ModelConfig(path, "cuda"))
    model.half = False
    network = plain_network(path, torch.float32)
    prompts = [
        model.tokenizer.encode(" ".join(task.chunks[0].split()[: 40 + 7 * i]))
        for i, task in enumerate(make_tasks(32, 1, 300, 7))
    ]
    policy = PagedPolicy(model, cache_bytes=2 << 30)

    async def ours() -> list[tuple[int, ...]]:
        sampling = Sampling(max_tokens=new_tokens, temperature=0)
        replies = await asyncio.gather(*(policy.sample(p, sampling) for p in prompts))
        return [reply.token_ids for reply in replies]

    same = 0
    end = model.tokenizer.end_ids[0]
    for prompt, own in zip(prompts, asyncio.run(ours()), strict=True):
        with torch.inference_mode():
            out = network.generate(
                input_ids=torch.tensor([prompt]).cuda(), max_new_tokens=new_tokens,
                do_sample=False, eos_token_id=end, pad_token_id=end,
            )  # fmt: skip
        same += tuple(out[0, len(prompt) :].tolist()) == own
    return f"greedy, float32: {same} of {len(prompts)} replies have transformers' tokens"


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--chunks", type=int, default=6)
    parser.add_argument("--words", type=int, default=900, help="of a chunk")
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--turns", type=int, default=2, help="that generate repeats; or 0")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--cache-gib", type=float, default=40)
    parser.add_argument("--check", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--peer", choices=("generate", "vllm"), default="generate")
    parser.add_argument("--device", default="cuda", help="of --peer vllm")
    parser.add_argument("--modes", nargs="+", default=["recollect", "offline", "engine", "server"])
    parser.add_argument("--shapes", nargs="+", default=["fold", "lone", "tools"])
    parser.add_argument("--sequences", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--batch-tokens", type=int, nargs="+", default=[8192, 32768])
    parser.add_argument("--lone", type=int, default=8, help="long prompts")
    parser.add_argument("--lone-tokens", type=int, default=6000, help="of a long prompt")
    parser.add_argument("--profile", action="store_true", help="say where the time goes")
    parser.add_argument("--tool-turns", type=int, default=30)
    parser.add_argument("--tool-tasks", type=int, help="of the shape with tools; --tasks if absent")
    parser.add_argument("--logprobs", type=int, nargs="+", choices=(0, 1), default=[1, 0])
    parser.add_argument("--seeds", type=int, nargs="+", choices=(0, 1), default=[1], help="of vLLM")
    parser.add_argument("--graphs", type=int, nargs="+", default=[0], help="vLLM's, to this batch")
    parser.add_argument("--limit", type=float, default=0, help="seconds of a setting; 0: none")
    parser.add_argument("--lock", help="of a race: a file that several races share")
    parser.add_argument("--at-once", type=int, default=1, help="settings that start together")
    options = parser.parse_args()
    if options.peer == "vllm":
        from benchmarks.race import race

        raise SystemExit(race(options))
    if options.check:
        print(check(options.model))
    model = load_model(ModelConfig(options.model, "cuda", compile=options.compile))
    policy = open_sampler(model, options.cache_gib, options.tasks * options.group)
    assert isinstance(policy, PagedPolicy)
    for seed in (1, 2):  # the first one records
        tasks = make_tasks(options.tasks, options.chunks, options.words, seed)
        groups, seconds = measure(model, policy, tasks, options)
        print(f"rollout {seed}: {seconds:.2f} s")
    if options.profile:
        from benchmarks.rollout_profile import profiled

        with profiled(policy, "the same rollout", kernels=False):
            measure(model, policy, tasks, options)
        # Every kernel of every step is an event: few steps are enough, and quick to add up.
        few = argparse.Namespace(**{**vars(options), "new_tokens": 32})
        with profiled(policy, "two turns of 32 tokens", kernels=True):
            measure(model, policy, make_tasks(options.tasks, 1, options.words, 3), few)
    contexts = [c for group in groups for e in group for c in e.contexts]
    sampled = sum(len(c.turns[0].token_ids) for c in contexts)
    prompted = sum(c.turns[0].start for c in contexts)
    failed = sum(bool(e.failure) for group in groups for e in group)
    least = bound(model, groups)
    print(
        f"{options.tasks} x {options.group} x {options.chunks}: {len(contexts)} turns,"
        f" {prompted / len(contexts):.0f} tokens of prompt and {sampled / len(contexts):.0f} new"
        f" each on average; {failed} failed"
    )
    ours = sampled / seconds
    print(f"recollect: {ours:,.0f} new tokens/s, {least / seconds:.0%} of the bound", flush=True)
    if not options.turns:
        return
    del policy
    torch.cuda.empty_cache()
    network = plain_network(options.model, torch.bfloat16)
    tokens = taken = 0.0
    for turn in range(1, 1 + options.turns):
        own = [e.contexts[turn] for group in groups for e in group]
        count, used = generate(network, own, model, options.new_tokens)
        tokens, taken = tokens + count, taken + used
        print(f"generate, turn {turn}: {count} new tokens in {used:.2f} s")
    theirs = tokens / taken
    print(f"{'':12}{'tokens/s':>12}{'of the bound':>14}")
    print(f"{'generate':12}{theirs:12.0f}")
    print(f"{'recollect':12}{ours:12.0f}{least / seconds:13.0%}")
    print(f"{'ratio':12}{ours / theirs:11.1f}x")
    print(f"figure | new tokens/s | {ours:,.0f} | generate: {theirs:,.0f}, {ours / theirs:.1f}x")
    print(f"figure | of what the bandwidth allows | {least / seconds:.0%} | ")


if __name__ == "__main__":
    main()
