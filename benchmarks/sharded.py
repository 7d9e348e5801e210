# SPDX-License-Identifier: Apache-2.0
"""Train a transformer that `fully_shard` has shared out; print what each process holds and how fast it is.

torchrun --nproc-per-node 2 benchmarks/sharded.py --backend gloo --width 128
torchrun --nproc-per-node 8 benchmarks/sharded.py --backend nccl --width 1024 --layers 12 --checkpointing
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from ggdp.training import make_private


class Block(nn.Module):
    """One block of a transformer, attention and two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, width // 32, batch_first=True)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """See `nn.Module`."""
        seen = self.before(x)
        x = x + self.attention(seen, seen, seen, need_weights=False)[0]
        return x + self.back(functional.gelu(self.wide(self.between(x))))


class Language(nn.Module):
    """Tokens in, the next tokens' scores out."""

    def __init__(self, tokens: int, width: int, layers: int, saving: bool) -> None:
        super().__init__()
        self.saving = saving
        self.embedding = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens: Tensor) -> Tensor:
        """See `nn.Module`."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.saving else block(x)
        return self.head(x).flatten(1)


def main() -> None:
    """Parse, train, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="gloo", choices=["gloo", "nccl"])
    for name, value in {
        "width": 128,
        "layers": 4,
        "tokens": 2000,
        "length": 32,
        "steps": 4,
        "batch": 16,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--whole", action="store_true", help="do not shard, for comparison")
    parser.add_argument("--checkpointing", action="store_true", help="compute activations twice")
    parser.add_argument("--bfloat16", action="store_true", help="compute in bfloat16")
    args = parser.parse_args()
    dist.init_process_group(args.backend)
    device = torch.device("cpu")
    if args.backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    model: nn.Module = Language(args.tokens, args.width, args.layers, args.checkpointing).to(device)
    if not args.whole:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if args.bfloat16 else None)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        fully_shard(model, mp_policy=policy)
    examples = torch.randint(args.tokens, (64 * args.batch, args.length + 1))
    private = make_private(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        DataLoader(TensorDataset(examples), batch_size=args.batch),
        beta=1.5, clip_norm=1.0, noise_multiplier=1.0, delta=1e-6, steps=args.steps,
        physical_batch_size=args.batch,
    )  # fmt: skip
    seconds = []
    for (batch,) in private.data_loader.batches(args.steps):
        start = time.perf_counter()
        batch = batch.to(device)
        scores = model(batch[:, :-1]).view(len(batch), args.length, -1).float()
        losses = functional.cross_entropy(scores.transpose(1, 2), batch[:, 1:], reduction="none").mean(dim=1)
        private.backward(losses)
        private.optimizer.step()
        seconds.append(time.perf_counter() - start)
    held = 0
    for parameter in model.parameters():
        state = [each for each in private.optimizer.state[parameter].values() if each.dim()]
        for each in (parameter, parameter.grad, *state):
            own = each.to_local() if hasattr(each, "to_local") else each
            held += own.numel() * own.element_size()
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else float("nan")
    print(
        f"process {dist.get_rank()} of {dist.get_world_size()}: {private.plan.dimension:,} parameters, holds "
        f"{held / 2**20:.1f} MiB of parameters, gradients and optimizer state, peak {peak:.0f} MiB, "
        f"{sorted(seconds)[len(seconds) // 2]:.3f} s a step, epsilon "
        f"{private.accountant.epsilon(delta=1e-6).upper:.4f}",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
