# SPDX-License-Identifier: Apache-2.0
"""Phases 2 and 3: CIFAR-10 at epsilon = 1 on a network that learnt from random processes (`prior.py`).

    python papers/random_priors/train.py --data DATA --prior prior.pt --out run --train last --device cuda

`--train` says what of the network is trained with privacy:

- `linear`: a linear layer on frozen features;
- `cnn`: a small convolutional network on frozen features, beside the scattering features of Table 1;
- `last`: a linear layer on frozen features first (phase 2), then it and the last two blocks (phase 3);
- `upper`: the same, with the last four blocks in phase 3;
- `whole`: the same, with all of the network in phase 3, which is DP-RandP (Tang et al. 2023).

Every reading of training images is charged: one release that standardises features, the steps of phase 2 and
those of phase 3 share the budget, and epsilon is what the ledger of the last phase says about all of them. A
run that was stopped goes on with the same command. Test images are read after the last step of a phase, one
view of each counts, and nothing depends on what is found. With `--held-out N` they are not read at all, and
the last N training images are scored instead.
`--changes FILE` does so for many settings, one JSON object a line, and writes the results to `tried.json`.
Without `--seed` batches and noise are unpredictable; a run with a seed can be repeated and is not private.
"""

import argparse
import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import prior
import torch
from features import CHUNK, Features, frozen_features, halves, side_by_side, split, views_of
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from ggdp.torch import fit, make_private
from ggdp.training.private import Private
from ggdp.training.weight_average import WeightAverage
from ggdp_paper.record import versions
from ggdp_paper.tasks.standardisation import mechanism, standardisation_kept_in

STANDARDISING_NOISE = 32.0
FROZEN_PARTS = {"linear": prior.PARTS, "cnn": prior.PARTS, "last": 5, "upper": 3, "whole": 0}


class Classifier(nn.Module):
    """What is trained of the network, an average over places, a fixed scale, and a linear layer."""

    def __init__(self, rest: nn.Sequential, grid: int, shift: Tensor, scale: Tensor, half: bool) -> None:
        super().__init__()
        self.rest, self.grid, self.half_precision = rest, grid, half
        self.register_buffer("shift", shift)
        self.register_buffer("scale", scale)
        self.linear = nn.Linear(len(shift), 10)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, values: Tensor) -> Tensor:
        with halves(values.device.type) if self.half_precision else contextlib.nullcontext():
            if values.dtype == torch.uint8:
                values = prior.normalised(values)
            elif not self.half_precision:
                values = values.float()
            if values.is_cuda:
                values = values.contiguous(memory_format=torch.channels_last)
            values = self.rest(values)
        pooled = functional.adaptive_avg_pool2d(values.float(), self.grid).flatten(1)
        return self.linear((pooled - self.shift) * self.scale)


def small_network(channels: int) -> nn.Sequential:
    """The network of Table 1 for so many channels."""
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(1024, 10),
    )


class Floats(nn.Module):
    """A model that is given features in half precision."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: Tensor) -> Tensor:
        return self.inner(values.float())


@torch.no_grad()
def accuracies(model: nn.Module, views: list[Tensor], labels: Tensor) -> list[float]:
    """Of the first view alone; then of the mean prediction for both, which costs no privacy either."""
    model.eval()
    found = [torch.cat([model(part).softmax(1) for part in torch.split(view, CHUNK)]) for view in views]
    return [float((each.argmax(1) == labels).double().mean()) for each in (found[0], found[0] + found[1])]


def trained(
    model: nn.Module,
    data: TensorDataset,
    out: Path,
    generator: torch.Generator | None,
    on_epoch: Any = None,
    *,
    learning_rate: float,
    momentum: float,
    average: float,
    faster: float = 1.0,
    **private_arguments: Any,
) -> tuple[nn.Module, Private, dict[str, float]]:
    """Train with privacy, or read what was trained from the folder; average of weights, run, its numbers.

    `faster` is by how much the learning rate of the linear layer is larger: its inputs have length about 1,
    so that its gradients are short.
    """
    quick = list(model.linear.parameters()) if isinstance(model, Classifier) else []
    others = [each for each in model.parameters() if all(each is not one for one in quick)]
    groups = [{"params": others}, {"params": quick, "lr": faster * learning_rate}] if quick else others
    optimizer = torch.optim.SGD(groups, lr=learning_rate, momentum=momentum)
    averaged = WeightAverage(model, optimizer, average)
    start = time.perf_counter()
    private = make_private(
        model, optimizer, DataLoader(data, shuffle=True), beta=2.0, generator=generator, **private_arguments
    )
    finished = out / "finished.pt"
    if finished.exists():
        kept = torch.load(finished, map_location=data.tensors[0].device)
        averaged.model.load_state_dict(kept["model"])
        private.detach()
        return averaged.model, private, kept["numbers"]
    report = fit(
        private,
        checkpoint=out / "steps",
        resume=(out / "steps").exists(),
        keep={"averaged": averaged},
        save_every=60.0,
        progress=False,
        on_epoch=on_epoch,
    )
    private.detach()
    numbers = {
        "epsilon": report.last.epsilon,
        "lower epsilon": report.last.epsilon_lower,
        "noise multiplier": private.plan.noise_multiplier,
        "steps": report.last.steps,
        "seconds": time.perf_counter() - start,
    }
    torch.save({"model": averaged.model.state_dict(), "numbers": numbers}, finished)
    return averaged.model, private, numbers


def run(asked: argparse.Namespace) -> dict[str, Any]:
    """All phases on private images, and the record."""
    begun = time.perf_counter()
    device, out = asked.device, asked.out
    out.mkdir(parents=True, exist_ok=True)
    data = split(asked)
    network = prior.load(asked.prior, device).requires_grad_(False)
    public = torch.Generator(device).manual_seed(11)  # of the views, which are public
    generator = None if asked.seed is None else torch.Generator().manual_seed(asked.seed)
    torch.manual_seed(0 if asked.seed is None else asked.seed)  # of first weights, public as well
    views = views_of(data.train, asked.views, public)
    features = Features(network, asked, maps=asked.train == "cnn")
    of_views = [features(views[:, view]) for view in range(asked.views)]
    released = standardisation_kept_in(
        out / "standardisation.json",
        of_views[0].float(),
        features.guess,
        STANDARDISING_NOISE,
        rng=None if asked.seed is None else np.random.default_rng(asked.seed),
    )
    charged = [(mechanism(features.channels, STANDARDISING_NOISE), 1)]
    scale = features.weights() / released.std
    shift, scale = released.mean.to(device), scale.to(device)
    shared = {"delta": asked.delta, "clip_norm": asked.clip, "views": asked.views}
    budget = {
        "target_epsilon": asked.epsilon,
        "batch_size": min(asked.batch, len(data.train)),
        "steps": asked.steps,
    }
    print(f"features after {time.perf_counter() - begun:.1f} s", flush=True)
    scored = [data.scored, data.scored.flip(-1)]
    phases: dict[str, Any] = {}

    def standardised(found: Tensor) -> Tensor:
        for part in torch.split(found, CHUNK):  # in place: there are gigabytes of them
            part.copy_((part.float() - shift.view(-1, 1, 1)) * scale.view(-1, 1, 1))
        return found

    if asked.train == "cnn":
        inputs = side_by_side(len(data.train), asked.views, lambda view: standardised(of_views.pop(0)))
        model, _, phases["network"] = trained(
            Floats(small_network(features.channels)).to(device),
            TensorDataset(inputs, data.labels),
            out / "network",
            generator,
            learning_rate=asked.lr,
            momentum=asked.momentum,
            average=asked.average,
            alongside=charged,
            physical_batch_size=asked.physical,
            **shared,
            **budget,
        )
        score = accuracies(model, [standardised(features(each)) for each in scored], data.scored_labels)
    else:
        pooled = torch.stack([standardised(found).flatten(1).float() for found in of_views], dim=1)
        head = nn.Linear(features.channels, 10).to(device)
        for parameter in head.parameters():
            nn.init.zeros_(parameter)
        only = asked.train == "linear"
        head, first, phases["linear layer"] = trained(
            head,
            TensorDataset(pooled, data.labels),
            out / "linear",
            generator,
            learning_rate=asked.head_lr,
            momentum=0.9,
            average=0.9,
            alongside=charged,
            target_epsilon=asked.epsilon if only else asked.head_epsilon,
            rate=1.0,
            steps=asked.head_steps,
            delta=asked.delta,
            clip_norm=1.0,
            views=asked.views,
        )
        seen = [standardised(features(each)).flatten(1).float() for each in scored]
        score = phases["linear layer"]["accuracy"], _ = accuracies(head, seen, data.scored_labels)
        print(f"linear layer: {phases['linear layer']}", flush=True)
        del pooled, of_views
        if not only:
            charged.append((first.plan.step, first.plan.steps))
            cut = FROZEN_PARTS[asked.train]
            model = Classifier(network[cut:].requires_grad_(True), asked.grid, shift, scale, asked.half)
            model.linear.load_state_dict(head.state_dict())
            model = model.to(device)
            trunk = network[:cut]
            inputs = views
            if cut:
                inputs = side_by_side(
                    len(views), asked.views, lambda view: frozen_features(trunk, views[:, view], None)
                )
            print(f"phase 3 begins after {time.perf_counter() - begun:.1f} s", flush=True)

            def on_epoch(row: Any) -> None:
                if not cut and asked.views > 2:  # new views for the next epoch
                    inputs[:] = views_of(data.train, asked.views, public)
                if row.epoch % 5 == 1:
                    print(f"epoch {row.epoch}: {row.seconds:.0f} s, epsilon {row.epsilon:.3f}", flush=True)

            model, _, phases["network"] = trained(
                model,
                TensorDataset(inputs, data.labels),
                out / "network",
                generator,
                on_epoch,
                faster=asked.faster,
                learning_rate=asked.lr,
                momentum=asked.momentum,
                average=asked.average,
                alongside=charged,
                physical_batch_size=asked.physical,
                **shared,
                **budget,
            )
            seen = [frozen_features(trunk, each, None) if cut else each for each in scored]
            score = accuracies(model, seen, data.scored_labels)
    told = {name: str(value) if isinstance(value, Path) else value for name, value in vars(asked).items()}
    record = {
        "what": f"CIFAR-10 at epsilon = {asked.epsilon:g}, delta = {asked.delta:g}, no photographs beyond it",
        "accuracy": score[0],
        "accuracy, an image and its mirror image averaged": score[1],
        "scored on": f"{len(data.scored)} "
        + ("held-out training images" if asked.held_out else "test images"),
        "phases": phases,
        "settings": {
            name: value
            for name, value in told.items()
            if name not in ("data", "out", "prior", "changes", "speed")
        },
        "prior": {
            "history": torch.load(asked.prior, map_location="cpu")["history"],
            "sha256": hashlib.sha256(asked.prior.read_bytes()).hexdigest(),
        },
        "seconds": time.perf_counter() - begun,
        "versions": versions(on_gpu=device == "cuda"),
    }
    (out / "record.json").write_text(json.dumps(record, indent=1) + "\n")
    print(
        json.dumps({name: record[name] for name in ("accuracy", "scored on", "phases", "seconds")}),
        flush=True,
    )
    return record


def tries(asked: argparse.Namespace) -> None:
    """Run every change of the settings on held-out images; what is there already is not run again."""
    file = asked.out / "tried.json"
    found = json.loads(file.read_text()) if file.exists() else []
    for line in asked.changes.read_text().splitlines():
        change = json.loads(line)
        if any(each["change"] == change for each in found):
            continue
        name = hashlib.sha256(line.encode()).hexdigest()[:10]
        try:
            record = run(argparse.Namespace(**{**vars(asked), **change, "out": asked.out / name}))
        except (torch.OutOfMemoryError, ValueError) as error:  # settings that do not fit, or are refused
            print(f"{line}: {type(error).__name__} {str(error)[:300]}", flush=True)
            continue
        kept = ("accuracy", "accuracy, an image and its mirror image averaged", "phases", "seconds")
        found.append({"change": change, **{name: record[name] for name in kept}})
        print(line, record["accuracy"], flush=True)
        file.write_text(json.dumps(found, indent=1) + "\n")
        if asked.device == "cuda":
            torch.cuda.empty_cache()


def speed(asked: argparse.Namespace) -> None:
    """Views per second of private steps, for what is trained, views and precision."""
    data = split(asked)
    network = prior.load(asked.prior, asked.device)
    torch.backends.cuda.matmul.allow_tf32 = True
    for train, views, half in (
        ("last", 4, True),
        ("last", 4, False),
        ("upper", 4, True),
        ("whole", 4, True),
        ("whole", 4, False),
    ):
        cut, count = FROZEN_PARTS[train], min(asked.batch, len(data.train))
        pixels = views_of(data.train[:count], views, torch.Generator(asked.device).manual_seed(1))
        inputs = pixels
        if cut:
            inputs = side_by_side(
                count,
                views,
                lambda view, trunk=network[:cut], seen=pixels: frozen_features(trunk, seen[:, view], None),
            )
        nothing = torch.zeros(prior.FEATURES, device=asked.device)
        model = Classifier(network[cut:], 1, nothing, nothing + 1.0, half).to(asked.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        try:
            private = make_private(
                model,
                optimizer,
                DataLoader(TensorDataset(inputs, data.labels[:count]), shuffle=True),
                beta=2.0,
                clip_norm=1.0,
                noise_multiplier=9.0,
                delta=1e-5,
                rate=0.999,
                steps=100,
                views=views,
                physical_batch_size=asked.physical,
            )
            times = []
            for step, (batch, labels) in enumerate(_forever(private)):
                if step == 0:
                    waits(asked.device)
                start = time.perf_counter()
                functional.cross_entropy(model(batch), labels.repeat_interleave(views)).backward()
                private.optimizer.step()
                waits(asked.device)
                times.append((time.perf_counter() - start) / len(labels) / views)
                if step == 5:
                    break
            peak = torch.cuda.max_memory_allocated() / 2**30 if asked.device == "cuda" else 0.0
            print(
                f"{train}, {views} views, {'half' if half else 'single'}: "
                f"{1.0 / times[-1]:.0f} views/s, peak {peak:.1f} GiB",
                flush=True,
            )
            private.detach()
        except torch.OutOfMemoryError as error:
            print(
                f"{train}, {views} views, half={half}: {type(error).__name__} {str(error)[:300]}", flush=True
            )


def _forever(private: Private) -> Any:
    while True:
        yield from private.data_loader


def waits(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, required=True, help="folder that holds cifar-10-batches-bin or -py"
    )
    parser.add_argument("--prior", type=Path, required=True, help="what prior.py wrote")
    parser.add_argument("--out", type=Path, default=Path("random_priors"), help="folder; a run there goes on")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--train", choices=FROZEN_PARTS, default="last")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--views", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=875)
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--average", type=float, default=0.99)
    parser.add_argument(
        "--grid", type=int, default=1, help="features are averaged over so many by so many fields"
    )
    parser.add_argument(
        "--faster", type=float, default=10.0, help="of the linear layer in phase 3, times --lr"
    )
    parser.add_argument("--head-epsilon", type=float, default=0.3)
    parser.add_argument("--head-steps", type=int, default=50)
    parser.add_argument("--head-lr", type=float, default=30.0)
    parser.add_argument("--half", action="store_true", help="bfloat16 in forward and backward passes")
    parser.add_argument("--physical", type=int, help="most images in memory at a time")
    parser.add_argument("--held-out", type=int, default=0)
    parser.add_argument("--most", type=int, default=0, help="images of each part, to try the script")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--changes", type=Path, help="a file of settings to try on held-out images")
    parser.add_argument("--speed", action="store_true", help="only measure steps")
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = True
    if asked.speed:
        speed(asked)
    elif asked.changes:
        if not asked.held_out:
            parser.error("--held-out must be given with --changes: settings are not chosen on test images")
        tries(asked)
    else:
        run(asked)


if __name__ == "__main__":
    main()
