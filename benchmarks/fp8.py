"""What FP8 would buy in training and what it costs: matrix products of a 7B, and gradients.

Every product of a linear layer, forward and both backward, in e4m3 with a scale per row (torch's
scaled product, bfloat16 results), beside bfloat16. First the speed, with and without the conversion
of the inputs, at the widths of a 7B; then how far gradients are from float32's, relative to their
norm, through layers of SmolLM2's width with random weights.

    python benchmarks/fp8.py [--tokens 22000] [--layers 8]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Qwen2Config

E4M3 = torch.float8_e4m3fn
LARGEST = torch.finfo(E4M3).max
WIDTHS = {"qkv": (3584, 4608), "output": (3584, 3584), "up": (3584, 18944), "down": (18944, 3584)}
"""Of the linear layers of a 7B, in and out; `up` is there twice."""


def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return rows in e4m3, and the factor of each."""
    scale = x.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / LARGEST
    return (x.float() / scale).clamp(-LARGEST, LARGEST).to(E4M3), scale


def product(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
    """Multiply rows of a by rows of b."""
    if a[0].device.type == "cpu":  # no such kernel: the same numbers by way of float32
        return ((a[0].float() * a[1]) @ (b[0].float() * b[1]).T).bfloat16()
    found: Tensor = torch._scaled_mm(a[0], b[0].T, a[1], b[1].T, out_dtype=torch.bfloat16)
    return found


def fp8_product(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b.T in e4m3."""
    return product(quantised(a), quantised(b))


class Fp8(torch.autograd.Function):
    """x @ weight.T with all three products of training in e4m3."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Multiply."""
        ctx.save_for_backward(x, weight)
        return fp8_product(x, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of both."""
        x, weight = ctx.saved_tensors
        grad = grads[0].contiguous()
        return (
            fp8_product(grad, weight.T.contiguous()),
            fp8_product(grad.T.contiguous(), x.T.contiguous()),
        )


class Fp8Linear(nn.Linear):
    """A linear layer that multiplies in e4m3."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        flat = x.reshape(-1, x.shape[-1]).bfloat16()
        left = -len(flat) % 16  # the kernel wants multiples of 16
        padded = nn.functional.pad(flat, (0, 0, 0, left))
        out: Tensor = Fp8.apply(padded, self.weight.bfloat16())[: len(flat)]
        out = out if self.bias is None else out + self.bias.bfloat16()
        return out.reshape(*x.shape[:-1], -1)


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Time some work on the GPU."""
    found = []
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - started)
    return statistics.median(found[2:])


def layer_times(tokens: int, wide: int, out: int) -> list[float]:
    """Time the three products of a linear layer: bf16, FP8, and FP8 with the conversion."""
    convert = torch.compile(quantised)
    x = torch.randn(tokens, wide, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(out, wide, device="cuda", dtype=torch.bfloat16)
    g = torch.randn(tokens, out, device="cuda", dtype=torch.bfloat16)
    pairs = ((x, w), (g, w.T), (g.T, x.T))
    ready = [(convert(a.contiguous()), convert(b.contiguous())) for a, b in pairs]

    def converted() -> None:
        for a, b in pairs:
            product(convert(a.contiguous()), convert(b.contiguous()))

    return [
        seconds(lambda: [a @ b.T for a, b in pairs]),
        seconds(lambda: [product(a, b) for a, b in ready]),
        seconds(converted),
    ]


def speeds(tokens: int) -> None:
    """Print the time of one layer's products in both types."""
    totals = [0.0, 0.0, 0.0]
    print(f"{'':8}{'bf16, ms':>10}{'fp8, ms':>10}{'with conversion':>17}{'ratio':>8}")
    for name, (wide, out) in WIDTHS.items():
        times = layer_times(tokens, wide, out)
        count = 2 if name == "up" else 1
        totals = [total + count * t for total, t in zip(totals, times, strict=True)]
        print(f"{name:8}{_shown(times)}")
    print(f"{'a layer':8}{_shown(totals)}")
    print(f"figure | speed of a layer's products in FP8 | {totals[0] / totals[2]:.2f}x | bf16")


def _shown(times: list[float]) -> str:
    columns = "".join(f"{1e3 * t:{n}.2f}" for t, n in zip(times, (10, 10, 17), strict=True))
    return f"{columns}{times[0] / times[2]:7.2f}x"


def gradients(layers: int, seed: int, device: str) -> dict[str, Tensor]:
    """Return the gradient of all linear layers by the type they were multiplied in."""
    config = Qwen2Config(
        hidden_size=576, intermediate_size=1536, num_hidden_layers=layers, num_attention_heads=9,
        num_key_value_heads=3, vocab_size=4096, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(seed)
    network: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False).to(device)
    ids = torch.randint(4096, (4, 256), device=device)
    linear = [m for n, m in network.named_modules() if type(m) is nn.Linear and n != "lm_head"]
    found = {}
    for kind in ("float32", "bf16", "fp8"):
        network.zero_grad()
        for module in linear:
            module.__class__ = Fp8Linear if kind == "fp8" else nn.Linear
        with torch.autocast(device, torch.bfloat16, enabled=kind != "float32"):
            logits = network(input_ids=ids).logits
        logprobs = logits[:, :-1].float().log_softmax(-1)
        chosen = logprobs.gather(-1, ids[:, 1:, None]).squeeze(-1)
        signs = torch.where(torch.arange(4, device=device) % 2 == 0, 1.0, -1.0)[:, None]
        (chosen * signs).mean().backward()  # as with advantages of both signs
        found[kind] = torch.cat([m.weight.grad.float().flatten() for m in linear])
    return found


def distances(layers: int, seeds: int, device: str) -> None:
    """Print how far the gradients of bf16 and FP8 are from float32's, and from each other's."""
    pairs = (("bf16", "float32"), ("fp8", "float32"), ("fp8", "bf16"))
    rows = []
    for seed in range(seeds):
        found = gradients(layers, seed, device)
        rows.append([float((found[a] - found[b]).norm() / found[b].norm()) for a, b in pairs])
    for (a, b), column in zip(pairs, zip(*rows, strict=True), strict=True):
        mean = statistics.mean(column)
        print(f"{a:5} from {b:8}{mean:8.4f}  ({min(column):.4f} to {max(column):.4f})")
        if b == "float32":
            print(f"figure | gradient in {a} | {mean:.4f} off | {b}")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=22_000)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    gpu = torch.cuda.is_available()
    if gpu:
        speeds(options.tokens // 16 * 16)
    distances(options.layers, options.seeds, "cuda" if gpu else "cpu")


if __name__ == "__main__":
    main()
