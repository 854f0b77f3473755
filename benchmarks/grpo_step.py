"""One GRPO step, the embedded engine beside TRL's GRPOTrainer: same model, prompts, group size.

Each engine runs in a process of its own, one after the other, several steps each; the first step is
warm-up. Random weights never end early, so both sample and train the same number of tokens.

    python benchmarks/grpo_step.py [--shape small|smollm2] [--device cpu|cuda]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHAPES = {
    "small": dict(
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=4096,
    ),
    "smollm2": dict(
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        vocab_size=49152,
    ),
}


def main() -> None:
    """Run both engines and print one table."""
    options = parse()
    if options.engine:
        print(json.dumps({"ours": ours, "trl": trl}[options.engine](options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), options.shape)
        results = {}
        for engine in ("ours", "trl"):
            command = [sys.executable, __file__, *sys.argv[1:], "--engine", engine]
            done = subprocess.run([*command, "--folder", folder], stdout=subprocess.PIPE, text=True)
            if done.returncode:
                sys.exit(f"{engine} failed")
            results[engine] = json.loads(done.stdout.splitlines()[-1])
    show(options, results)


def parse() -> argparse.Namespace:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompts", type=int, default=2)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=320)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--cache-gib", type=float, default=4)
    parser.add_argument("--token-budget", type=int, default=16384)
    parser.add_argument("--compile", action="store_true", help="our layers, on a GPU")
    parser.add_argument("--engine", choices=("ours", "trl"))
    parser.add_argument("--folder")
    return parser.parse_args()


def make_model(folder: Path, shape: str) -> None:
    """Save a Llama of the shape with random weights and a word tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    size = SHAPES[shape]["vocab_size"]
    vocabulary = {"<end>": 0, "<user>": 1, "<assistant>": 2, "<unk>": 3}
    vocabulary |= {f"w{i}": i for i in range(4, size)}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    hf = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<unk>")
    hf.add_special_tokens({"additional_special_tokens": ["<user>", "<assistant>"]})
    hf.chat_template = (
        "{% for m in messages %}<{{ m.role }}> {{ m.content }} <end> {% endfor %}"
        "{% if add_generation_prompt %}<assistant> {% endif %}"
    )
    torch.manual_seed(0)
    network = LlamaForCausalLM(
        LlamaConfig(
            **SHAPES[shape],
            max_position_embeddings=8192,
            eos_token_id=0,
            pad_token_id=3,
            bos_token_id=None,
            tie_word_embeddings=True,
        )
    )
    network.save_pretrained(folder)
    hf.save_pretrained(folder)


def prompt_text(options: argparse.Namespace, number: int) -> str:
    """Make a prompt of random words, the same for both engines."""
    import random

    rng = random.Random(number)
    words = SHAPES[options.shape]["vocab_size"]
    return " ".join(f"w{rng.randrange(4, words)}" for _ in range(options.prompt_tokens))


def reward_of(number: int) -> float:
    """Reward that differs within every group, so that every sample is trained."""
    return float(number % 2)


def ours(options: argparse.Namespace) -> dict[str, float]:
    """Time steps of the embedded engine."""
    from recollect.advantages import grpo
    from recollect.chat.chat import Chats, Model
    from recollect.chat.rendering import Renderer, user
    from recollect.config.engine import LossConfig, ModelConfig, OptimConfig
    from recollect.memory.text import TextMemory
    from recollect.models.model import load_model
    from recollect.rewards.base import Score
    from recollect.rollout import Rollout
    from recollect.sampler.choice import open_sampler
    from recollect.samples import make_samples
    from recollect.train.trainer import Trainer
    from recollect.types import Episode, Question, Sampling, Task

    class OneChat:
        def new_memory(self, task: Task) -> TextMemory:
            return TextMemory()

        async def run(self, task: Task, chats: Chats, memory: TextMemory) -> list[str]:
            chat = chats.open("answer")
            return [(await chat.say(user(task.chunks[0]))).text]

    async def alternate(episode: Episode, memory: object) -> Score:
        return Score(reward_of(episode.rollout))

    config = ModelConfig(
        options.folder, device=options.device, threads=options.threads, compile=options.compile
    )
    model = load_model(config)
    trainer = Trainer(
        model,
        LossConfig(kl_coef=0.0),
        OptimConfig(lr=1e-6),
        updates_per_step=1,
        token_budget=options.token_budget,
        temperature=1.0,
    )
    policy = open_sampler(model, options.cache_gib)
    sampling = Sampling(max_tokens=options.new_tokens)
    speaker = Model(policy, Renderer(model.tokenizer), True, sampling)
    rollout = Rollout(OneChat(), {"answer": speaker}, alternate)
    question = (Question("", ("",)),)
    times, sampled = [], []
    for step in range(options.steps):
        tasks = [
            Task(str(i), (prompt_text(options, step * 100 + i),), question)
            for i in range(options.prompts)
        ]
        started = time.perf_counter()
        groups = asyncio.run(rollout.groups(tasks, options.group, (0, step)))
        middle = time.perf_counter()
        trainer.update(make_samples(groups, grpo))
        policy.reset()
        times.append((middle - started, time.perf_counter() - middle))
        sampled.append(sum(e.sampled_tokens for group in groups for e in group))
    return summary(times, sampled, options)


def trl(options: argparse.Namespace) -> dict[str, float]:
    """Time steps of TRL's GRPOTrainer."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(options.threads)
    rows = [
        {"prompt": [{"role": "user", "content": prompt_text(options, step * 100 + i)}]}
        for step in range(options.steps)
        for i in range(options.prompts)
    ]
    sampled: list[int] = []
    marks: list[tuple[float, float]] = []
    clock = {"begin": 0.0, "generated": 0.0}

    def reward(completion_ids: list[list[int]], **_: object) -> list[float]:
        clock["generated"] = time.perf_counter()
        sampled.append(sum(len(ids) for ids in completion_ids))
        return [reward_of(i % options.group) for i in range(len(completion_ids))]

    class Timer(TrainerCallback):
        def on_step_begin(self, *_: object, **__: object) -> None:
            clock["begin"] = time.perf_counter()

        def on_step_end(self, *_: object, **__: object) -> None:
            now = time.perf_counter()
            marks.append((clock["generated"] - clock["begin"], now - clock["generated"]))

    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(
            output_dir=out,
            per_device_train_batch_size=options.prompts * options.group,
            num_generations=options.group,
            max_completion_length=options.new_tokens,
            learning_rate=1e-6,
            beta=0.0,
            num_iterations=1,
            steps_per_generation=1,
            max_steps=options.steps,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            logging_steps=1000,
            save_strategy="no",
            report_to=[],
            use_cpu=options.device == "cpu",
            shuffle_dataset=False,
            bf16=options.device != "cpu",
            gradient_checkpointing=False,
            disable_tqdm=True,
            loss_type="dapo",
            scale_rewards="none",
        )
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(
                options.folder,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
            ),
            processing_class=AutoTokenizer.from_pretrained(
                options.folder, local_files_only=True, trust_remote_code=False
            ),
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list(rows),
            callbacks=[Timer()],
        )
        trainer.train()
    return summary(marks, sampled, options)


def summary(
    times: list[tuple[float, float]], sampled: list[int], options: argparse.Namespace
) -> dict[str, float]:
    """Summarise all steps but the first."""
    import torch

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    if options.device != "cpu":
        peak = torch.cuda.max_memory_allocated() / 2**30
    return {
        "rollout": statistics.median(a for a, _ in times[1:]),
        "update": statistics.median(b for _, b in times[1:]),
        "step": statistics.median(a + b for a, b in times[1:]),
        "tokens": statistics.median(sampled[1:]),
        "peak": peak,
    }


def show(options: argparse.Namespace, results: dict[str, dict[str, float]]) -> None:
    """Print both engines and the ratios."""
    mine, theirs = results["ours"], results["trl"]
    print(
        f"shape {options.shape}, {options.device}, {options.threads} thread(s): {options.prompts}"
        f" prompts x {options.group}, {options.prompt_tokens} + {options.new_tokens} tokens"
    )
    print(f"{'':24}{'recollect':>12}{'TRL':>12}{'ratio':>9}")
    for name, unit in (("rollout", "s"), ("update", "s"), ("step", "s"), ("peak", "GiB")):
        print(
            f"{name + ', ' + unit:24}{mine[name]:12.3f}{theirs[name]:12.3f}"
            f"{theirs[name] / mine[name]:8.2f}x"
        )
    for name, phase in (("sampled", "rollout"), ("trained", "update"), ("end to end", "step")):
        a, b = mine["tokens"] / mine[phase], theirs["tokens"] / theirs[phase]
        print(f"{name + ' tokens/s':24}{a:12.0f}{b:12.0f}{a / b:8.2f}x")


if __name__ == "__main__":
    main()
