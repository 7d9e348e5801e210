# SPDX-License-Identifier: Apache-2.0
"""Phase 1: a wide residual network learns from images of random processes; no private image is read.

    python papers/random_priors/prior.py --out prior.pt --seconds 150 --device cuda

Two random crops of one image, in changed colours, shall have features close to each other (alignment), and
features of all images shall lie evenly on the sphere (uniformity): the loss of Wang and Isola (2020), as in
DP-RandP. A file that is there already is gone on with; within every call the learning rate falls to zero, so
that what a call leaves can be used.

The network is WRN-16-4 with group normalisation: `network()` is a sequence of parts, so that its first parts
can be frozen and the others trained (`train.py`).
"""

import argparse
import contextlib
import json
import math
import time
from pathlib import Path

import torch
from random_images import random_images
from torch import Tensor, nn
from torch.nn import functional

MEAN, STD = 0.45, 0.25  # of pixels, public constants
GROUPS = 16
FEATURES = 256  # of width 4
PARTS = 9  # stem, two blocks at 32 x 32, two at 16 x 16, two at 8 x 8, normalisation, unit
_PROJECTED = 128
_SAVE_EVERY = 40.0  # seconds


class Block(nn.Module):
    """Normalise, unit, convolve, twice; beside it the input, or a 1 x 1 convolution of it."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first_norm = nn.GroupNorm(min(GROUPS, inputs), inputs)
        self.first = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(GROUPS, outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        changes = stride != 1 or inputs != outputs
        self.beside = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False) if changes else None

    def forward(self, values: Tensor) -> Tensor:
        seen = functional.relu(self.first_norm(values))
        found = self.second(functional.relu(self.second_norm(self.first(seen))))
        return found + (values if self.beside is None else self.beside(seen))


def network(width: int = 4) -> nn.Sequential:
    """Features [n, 64 width, 8, 8] of normalised images [n, 3, 32, 32]."""
    blocks: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False)]
    inputs = 16
    for outputs, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
        blocks += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*blocks, nn.GroupNorm(GROUPS, inputs), nn.ReLU())


def normalised(pixels: Tensor) -> Tensor:
    """Bytes to numbers of mean about 0 and deviation about 1."""
    return (pixels.float() / 255.0 - MEAN) / STD


class Projected(nn.Module):
    """The network, an average over places, and two layers that are thrown away after phase 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.network = network(width)
        features = 64 * width
        self.projection = nn.Sequential(  # normalised over the batch, which keeps features from becoming one
            nn.Linear(features, features),
            nn.BatchNorm1d(features, track_running_stats=False),
            nn.ReLU(),
            nn.Linear(features, _PROJECTED),
            nn.BatchNorm1d(_PROJECTED, affine=False, track_running_stats=False),
        )

    def forward(self, images: Tensor) -> Tensor:
        features = self.network(images).mean(dim=(2, 3))
        with torch.autocast(features.device.type, enabled=False):  # distances need more than eight bits
            return functional.normalize(self.projection(features.float()), dim=1)


def loss_of(first: Tensor, second: Tensor) -> Tensor:
    """Alignment plus uniformity, both with the exponents of Wang and Isola."""
    alignment = (first - second).square().sum(1).mean()
    return alignment + 0.5 * (_uniformity(first) + _uniformity(second))


def _uniformity(points: Tensor) -> Tensor:
    squares = 2.0 - 2.0 * points @ points.T
    count = len(points)
    others = torch.exp(-2.0 * squares).sum() - math.exp(0.0) * count
    return torch.log(others / (count * (count - 1)))


def crops(images: Tensor, generator: torch.Generator) -> Tensor:
    """One random crop of each image, 32 x 32, perhaps mirrored, in changed colours, normalised."""
    count, device = len(images), images.device

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator, device=device)

    area, ratio = uniform(0.1, 1.0, count), torch.exp(uniform(-0.288, 0.288, count))
    height, width = (area * ratio).sqrt().clamp_max(1.0), (area / ratio).sqrt().clamp_max(1.0)
    mirror = torch.where(uniform(0.0, 1.0, count) < 0.5, -1.0, 1.0)
    zero = torch.zeros_like(area)
    across = torch.stack([width * mirror, zero, uniform(-1.0, 1.0, count) * (1.0 - width)], dim=1)
    down = torch.stack([zero, height, uniform(-1.0, 1.0, count) * (1.0 - height)], dim=1)
    grid = functional.affine_grid(torch.stack([across, down], dim=1), [count, 3, 64, 64], align_corners=False)
    seen = functional.grid_sample(
        images.float() / 255.0, grid, padding_mode="reflection", align_corners=False
    )
    seen = functional.avg_pool2d(seen, 2)
    seen = seen * uniform(0.6, 1.4, count, 1, 1, 1)
    middle = seen.mean(dim=(1, 2, 3), keepdim=True)
    seen = middle + (seen - middle) * uniform(0.6, 1.4, count, 1, 1, 1)
    turn, strength = uniform(-0.8, 0.8, count), uniform(0.5, 1.5, count)
    grey = uniform(0.0, 1.0, count) < 0.2
    seen = torch.einsum("nij,njhw->nihw", _recoloured(turn, torch.where(grey, 0.0, strength)), seen)
    return (seen - MEAN) / STD


def _recoloured(turn: Tensor, strength: Tensor) -> Tensor:
    """Matrices that keep the brightness, and turn and scale what is left of a colour."""
    to = torch.tensor(
        [[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]], device=turn.device
    )
    one, zero = torch.ones_like(turn), torch.zeros_like(turn)
    cos, sin = strength * torch.cos(turn), strength * torch.sin(turn)
    rotation = torch.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], dim=1).view(-1, 3, 3)
    return torch.linalg.inv(to) @ rotation @ to


def learn(
    out: Path,
    *,
    seconds: float,
    device: str,
    most_seconds: float = math.inf,
    pairs: int = 512,
    pool: int = 131_072,
    width: int = 4,
    learning_rate: float = 0.24,
    compiled: bool = True,
    seed: int = 1,
) -> dict[str, float]:
    """Learn for so many seconds, pictures and compilation not counted; returns what was done.

    With them it takes `most_seconds` at most: less is learnt where they take long.
    """
    begun = time.perf_counter()
    kept = torch.load(out, map_location=device) if out.exists() else {"history": [], "width": width}
    generator = torch.Generator(device).manual_seed(seed + 1000 * len(kept["history"]))
    torch.manual_seed(seed)
    model = Projected(kept["width"]).to(device).to(memory_format=torch.channels_last)
    if "model" in kept:
        model.load_state_dict({name: value.float() for name, value in kept["model"].items()})
    start = time.perf_counter()
    images = random_images(pool, generator)
    _wait(device)
    drawn = time.perf_counter() - start
    print(f"{pool} images in {drawn:.1f} s", flush=True)
    step = _Step(model, images, pairs, learning_rate, generator, device)
    compiling = step.compile() if compiled else 0.0
    start, steps, losses, saved = time.perf_counter(), 0, [], 0.0
    seconds = max(1.0, min(seconds, most_seconds - (start - begun)))
    warm = min(10.0, 0.1 * seconds)

    def save() -> dict[str, float]:
        recent = [float(each) for each in losses[-64:]]
        done = {
            "seconds": time.perf_counter() - start,
            "seconds compiling": compiling,
            "steps": steps,
            "pairs": steps * pairs,
            "loss": sum(recent) / max(len(recent), 1),
        }
        halves = {name: value.half() for name, value in model.state_dict().items()}
        out.parent.mkdir(parents=True, exist_ok=True)
        torch.save({**kept, "history": [*kept["history"], done], "model": halves}, out)
        print(json.dumps(done), flush=True)
        return done

    while (passed := time.perf_counter() - start) < seconds:
        rising = min(1.0, (passed + 0.1) / warm)
        falling = 0.5 * (1.0 + math.cos(math.pi * passed / seconds))
        losses.append(step(learning_rate * rising * falling))
        steps += 1
        if steps % 64 == 0:
            fresh = min(512, pool)
            at = int(torch.randint(pool - fresh + 1, (), generator=generator, device=device))
            images[at : at + fresh] = random_images(fresh, generator)
            _wait(device)
            if passed - saved > _SAVE_EVERY:
                saved = passed
                save()
    _wait(device)
    return save()


class _Step:
    """One step of phase 1; compiled where that works and is faster."""

    def __init__(
        self,
        model: Projected,
        images: Tensor,
        pairs: int,
        learning_rate: float,
        generator: torch.Generator,
        device: str,
    ) -> None:
        self.model, self.called, self.images, self.pairs = model, model, images, pairs
        self.generator, self.device = generator, device
        self.optimizer = torch.optim.SGD(
            model.parameters(), lr=learning_rate, momentum=0.9, weight_decay=1e-4, nesterov=True
        )

    def compile(self) -> float:
        """Compile if a compiled step is faster than a plain one; returns the seconds that it took."""
        start = time.perf_counter()
        plain = self._timed()
        self.called = torch.compile(self.model)
        try:
            compiled = self._timed()
        except RuntimeError as error:  # a machine without a compiler; plain steps work
            print(f"not compiled: {type(error).__name__} {str(error)[:200]}", flush=True)
            compiled = math.inf
        if compiled > plain:
            self.called = self.model
        print(f"a step takes {1e3 * plain:.1f} ms, compiled {1e3 * compiled:.1f} ms", flush=True)
        return time.perf_counter() - start

    def _timed(self) -> float:
        for _ in range(4):
            self(0.0)
        _wait(self.device)
        start = time.perf_counter()
        for _ in range(10):
            self(0.0)
        _wait(self.device)
        return (time.perf_counter() - start) / 10

    def __call__(self, learning_rate: float) -> Tensor:
        which = torch.randint(len(self.images), (self.pairs,), generator=self.generator, device=self.device)
        chosen = self.images[which]
        both = torch.cat([crops(chosen, self.generator), crops(chosen, self.generator)])
        self.optimizer.param_groups[0]["lr"] = learning_rate
        with _halves(self.device):
            first, second = self.called(both.contiguous(memory_format=torch.channels_last)).chunk(2)
        loss = loss_of(first.float(), second.float())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


def _halves(device: str) -> contextlib.AbstractContextManager[object]:
    return torch.autocast("cuda", torch.bfloat16) if device == "cuda" else contextlib.nullcontext()


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def load(path: Path, device: str) -> nn.Sequential:
    """The network of a file that phase 1 wrote."""
    kept = torch.load(path, map_location=device)
    model = Projected(kept["width"]).to(device)
    model.load_state_dict({name: value.float() for name, value in kept["model"].items()})
    return model.network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="the file; gone on with if it exists")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument(
        "--most-seconds", type=float, default=math.inf, help="with what comes before learning"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pairs", type=int, default=512, help="in a batch")
    parser.add_argument("--pool", type=int, default=131_072, help="images to choose from")
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--learning-rate", type=float, default=0.24)
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    learn(
        asked.out,
        seconds=asked.seconds,
        most_seconds=asked.most_seconds,
        device=asked.device,
        pairs=asked.pairs,
        pool=asked.pool,
        width=asked.width,
        learning_rate=asked.learning_rate,
        compiled=not asked.no_compile,
    )


if __name__ == "__main__":
    main()
