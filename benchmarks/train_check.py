"""How far the gradients of rows and trie are from one another and from float32, on one GPU.

The noise of bfloat16 is how far two ways to compute the same rows are from each other: with our
choice of kernels, and with all rows in one call of FlashAttention (varlen). It varies with the
weights, so several seeds are shown.

    python benchmarks/train_check.py [--no-compile] [--seeds 5]
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
from train_step import as_others_do, make_model, measure, task

from recollect.config.engine import LossConfig, OptimConfig
from recollect.models.attention import Heads
from recollect.models.trie.pack import Packed, pack
from recollect.train.trainer import Trainer

Gradient = list[torch.Tensor]
PAIRS = (
    ("exact trie", "exact rows"),
    ("rows", "exact rows"),
    ("varlen", "exact rows"),
    ("trie", "exact rows"),
    ("varlen", "rows"),
    ("trie", "rows"),
    ("trie", "varlen"),
)
"""What is held against what; exact is float32."""


def main() -> None:
    """Print the distances of one task's gradients, computed five ways, for every seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    apart: dict[tuple[str, str], list[float]] = {pair: [] for pair in PAIRS}
    for seed in range(options.seeds):
        found = gradients(seed, options.compile)
        for one, other in PAIRS:
            apart[one, other].append(distance(found[one], found[other]))
    print("distance of gradients, relative to the second's norm (exact: float32)")
    for (one, other), offs in apart.items():
        each = "".join(f"{off:9.1e}" for off in offs)
        print(f"{one:>10} from {other:10} mean {sum(offs) / len(offs):.1e}, by seed{each}")
    for one in ("rows", "trie"):
        offs = apart[one, "exact rows"]
        print(f"figure | gradient in bfloat16, {one} | {sum(offs) / len(offs):.1e} off | float32")
    samples = task(2, 4, 1000, "chunk_first")
    for share, name in ((False, "rows"), (True, "trie")):
        packed = pack([s.token_ids for s in samples], "cuda", share)
        print(f"attention alone, bfloat16 off float32: {name} {attention_error(packed):.1e}")


def gradients(seed: int, compiled: bool) -> dict[str, Gradient]:
    """Compute one task's gradient in float32 and in bfloat16, as rows and as a trie."""
    torch.manual_seed(seed)
    model = make_model(
        argparse.Namespace(
            shape="smollm2", layers=8, weights="float32", recompute=0.0, compile=compiled
        )
    )
    trainer = Trainer(model, LossConfig(kl_coef=0.0), OptimConfig())
    samples = task(2, 4, model.tokenizer.vocab_size, "chunk_first", seed)
    found = {}
    for name, half, share in (
        ("exact rows", False, False),
        ("exact trie", False, True),
        ("rows", True, False),
        ("varlen", True, False),
        ("trie", True, True),
    ):
        model.half = half
        trainer.optimiser.drop()
        with as_others_do() if name == "varlen" else nullcontext():
            measure(trainer, samples, share, 1 << 16)
        totals = trainer.optimiser.gradients
        found[name] = [totals[p].clone() for p in model.trainable_parameters()]
    return found


def attention_error(packed: Packed) -> float:
    """Hold the kernels of a plan against a mask in float32: the output and all gradients."""
    tokens = len(packed.ids)
    inputs = [torch.randn(heads, tokens, 128, device="cuda") for heads in (14, 2, 2)]
    grad = torch.randn(tokens, 14, 128, device="cuda")
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        own = [x.bfloat16().to(dtype).requires_grad_() for x in inputs]
        out = packed.plan.attend(Heads(0, 128**-0.5), *own)
        out.backward(grad.bfloat16().to(dtype))
        found.append(
            [x.float() for x in (out.detach(), *(x.grad for x in own if x.grad is not None))]
        )
    return max(distance([a], [b]) for a, b in zip(*found, strict=True))


def distance(one: Gradient, other: Gradient) -> float:
    """Return the error relative to the norm of the second."""
    off = sum(float((a - b).square().sum()) for a, b in zip(one, other, strict=True))
    return (off / sum(float(b.square().sum()) for b in other)) ** 0.5


if __name__ == "__main__":
    main()
