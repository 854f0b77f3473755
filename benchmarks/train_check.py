"""How far the gradients of rows and trie are from one another and from float32, on one GPU.

The noise of bfloat16 is how far two ways to compute the same rows are from each other.

    python benchmarks/train_check.py [--no-compile]
"""

from __future__ import annotations

import argparse
from contextlib import nullcontext

import torch
from train_step import as_others_do, make_model, measure, task

from recollect.train.attention import Heads
from recollect.train.batch import Packed, pack
from recollect.train.settings import LossConfig, OptimConfig
from recollect.train.trainer import Trainer


def main() -> None:
    """Compute the gradient of one task five ways, and print the distances."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    model = make_model(
        argparse.Namespace(
            shape="smollm2",
            layers=8,
            weights="float32",
            recompute=0.0,
            compile=parser.parse_args().compile,
        )
    )
    trainer = Trainer(model, LossConfig(kl_coef=0.0), OptimConfig())
    samples = task(2, 4, model.tokenizer.vocab_size, "chunk_first")
    grads = {}
    for name, half, share in (
        ("exact rows", False, False),
        ("exact trie", False, True),
        ("rows", True, False),
        ("varlen rows", True, False),
        ("trie", True, True),
    ):
        model.half = half
        trainer.optimiser.drop()
        with as_others_do() if name == "varlen rows" else nullcontext():
            measure(trainer, samples, share, 1 << 16)
        totals = trainer.optimiser.gradients
        grads[name] = [totals[p].clone() for p in model.trainable_parameters()]
    off = distance(grads["exact trie"], grads["exact rows"])
    print(f"float32: trie off rows by {off:.1e}")
    for name in ("rows", "varlen rows", "trie"):
        off, apart = (distance(grads[name], grads[of]) for of in ("exact rows", "rows"))
        print(f"bfloat16: {name} off float32 rows by {off:.1e}, off bfloat16 rows by {apart:.1e}")
    for share, name in ((False, "rows"), (True, "trie")):
        packed = pack([s.token_ids for s in samples], "cuda", share)
        print(f"attention alone, bfloat16 off float32: {name} {attention_error(packed):.1e}")


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


def distance(one: list[torch.Tensor], other: list[torch.Tensor]) -> float:
    """Return the error relative to the gradient's norm."""
    off = sum(float((a - b).square().sum()) for a, b in zip(one, other, strict=True))
    return (off / sum(float(b.square().sum()) for b in other)) ** 0.5


if __name__ == "__main__":
    main()
