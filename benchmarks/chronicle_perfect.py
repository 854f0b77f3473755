"""How far could a search or a cut-off window get on chronicles, if their reader made no mistake?

    python -m benchmarks.chronicle_perfect --model models/smollm2 --out runs/chronicle

The plan's agents and tasks, as benchmarks/chronicle.py measures them, with a reader by rules in the
place of the model: what it gets wrong was not shown to it, and no training can change that. Needs
no GPU; of the model it takes the tokenizer alone. Results go beside those of the plan.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import recollect
from benchmarks import chronicle_table
from benchmarks.chronicle_plan import KNOWN
from benchmarks.chronicle_teacher import Teacher, follow, guess, shown
from recollect.agents.base import Agent
from recollect.agents.baselines import FullContextAgent
from recollect.agents.gated import GatedAgent
from recollect.agents.rag import RagAgent
from recollect.chat.chat import Model
from recollect.chat.rendering import Renderer, Tokenizer
from recollect.memory.embeddings.folder import FolderEmbedder
from recollect.memory.embeddings.live import LiveEmbedder
from recollect.memory.store import Embed
from recollect.models.tokenizer import load_tokenizer
from recollect.policies.scripted import ScriptedPolicy
from recollect.tasks.made.chronicle_reader import Reader, found_statements

WINDOW, FILLED, ANSWER, ALOUD = 8192, 7800, 64, 384
"""Tokens of a prompt and its answer; of passages that fill it; of an answer, and of one that counts
aloud."""
PASSAGES = (32, 64, 128, None)
"""Tokens of a passage; None takes whole pages, of 256. A sentence that is cut in two is lost, so
that there is RAG by whole sentences too: each is found alone and shown with those around it."""


@dataclass(frozen=True)
class PerfectReader:
    """Reply as one who misses nothing that a prompt shows, and guesses a town where it shows none.

    Says nothing before the answer, so that an answer is never cut off.
    """

    def __call__(self, prompt: str) -> str:
        """Write what changes a memory, or the answer."""
        if "<memory>" in prompt:
            return Teacher(gated=True).reply(prompt)
        question, reader = shown(prompt, "problem"), Reader()
        follow(found_statements(prompt), reader, question)
        return f"\\boxed{{{reader.answer(question) or guess(prompt)}}}"


def open_embedder() -> Embed:
    """Open minilm; vectors are held in memory, as agents search the same texts one by one."""
    return LiveEmbedder(FolderEmbedder("minilm"), batch_size=512, keep=2_000_000)


def agents(memory: int, embed: Embed | None = None) -> Mapping[str, Agent]:
    """Return the plan's baselines, RAG with passages of several lengths, and its memory.

    RAG shows as much as a memory and a page, as in the plan, and once more all that fits. It
    searches by meaning too where there is an embedder.
    """
    room = 256 + memory
    found: dict[str, Agent] = {
        "gated": GatedAgent(None, memory, ALOUD, exit_gate=False, lines=True),
        "full_context": FullContextAgent(max_answer_tokens=ANSWER),
    }
    for mode in ("bm25", "hybrid") if embed else ("bm25",):
        rag = RagAgent(mode, None, 20, room, ANSWER, embed=embed)
        cuts = {str(size or "page"): replace(rag, chunk_size=size) for size in PASSAGES}
        cuts["sentences"] = replace(rag, sentences=True, neighbours=1)
        for cut, own in cuts.items():
            name = f"rag{'_hybrid' if mode == 'hybrid' else ''}_{cut}"
            found[name] = own
            found[f"{name}_filled"] = replace(own, top_k=WINDOW, max_context_tokens=FILLED)
    return found


def measure(o: argparse.Namespace, tokenizer: Tokenizer, window: int) -> None:
    """Measure every seed and length, with the tasks of the plan."""
    policy = ScriptedPolicy(tokenizer, PerfectReader())
    known = agents(o.memory, open_embedder() if o.hybrid else None)
    for seed, times, name in product(o.seeds, o.lengths, o.agents or known):
        folder = o.out / f"perfect-{seed}" / f"{name}-{times}x"
        if (folder / chronicle_table.SCORES).exists():
            continue
        recollect.evaluate(
            tasks=f"chronicle:{','.join(KNOWN)}@{times * o.tokens}",
            agents={name: known[name]},
            model=Model(policy, Renderer(tokenizer), True, window=window),
            n=o.n if times <= 8 else o.far,
            first_seed=seed,
            temperature=0.0,
            top_p=1.0,
            metrics=("boxed_exact_match",),
            closed_book=False,
            out=folder,
        )
        chronicle_table.write_scores(folder, o.tokens)


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--lengths", type=int, nargs="+", default=(1, 8, 16, 32))
    parser.add_argument("--agents", nargs="+", help="all by default")
    parser.add_argument("--hybrid", action="store_true", help="search by meaning too: needs minilm")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2), help="of the tasks")
    numbers = {"tokens": 4096, "memory": 416, "n": 86, "far": 43}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    o = parser.parse_args()
    measure(o, load_tokenizer(o.model), WINDOW)
    print(chronicle_table.markdown(o.out))


if __name__ == "__main__":
    main()
