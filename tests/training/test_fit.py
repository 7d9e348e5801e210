# SPDX-License-Identifier: Apache-2.0
"""fit: reports, stops, checkpoints, and runs killed at any moment."""

import json
import math
import os
import stat

import pytest
import torch
from torch.utils.data import DataLoader

from ggdp import Accountant
from ggdp.training import CheckpointError, accuracy_on, fit, make_private
from training.models import blobs, generator, small_net

SETTINGS = {"clip_norm": 0.5, "noise_multiplier": 1.0, "delta": 1e-6, "epochs": 4}


class Killed(BaseException):
    """Stands for the end of a process: nothing in the library catches it."""


def private_run(noise=1.5, seed=7, optimizer=torch.optim.SGD, **settings):
    model = small_net()
    parts = (model, optimizer(model.parameters(), lr=0.3), DataLoader(blobs(), batch_size=40))
    return make_private(
        *parts, noise, **(SETTINGS | settings), generator=None if seed is None else generator(seed)
    )


def test_a_run_reports_epsilon_and_score_after_every_epoch(capsys):
    private = private_run()
    seen = []
    report = fit(private, evaluate=accuracy_on(blobs(seed=2)), on_epoch=seen.append, progress=False)
    assert [row.steps for row in report.rows] == [10, 20, 30, 40]
    assert tuple(seen) == report.rows
    for row in report.rows:
        assert row.epsilon == private.plan.epsilon(row.steps).upper
        assert row.epsilon_lower <= row.epsilon
    assert report.last.score > 0.7
    assert report.best.score == max(row.score for row in report.rows)
    assert report.stopped_by == "plan"
    json.dumps(report.to_dict())
    assert capsys.readouterr() == ("", "")


def test_a_budget_ends_the_run_at_the_last_step_that_fits():
    private = private_run(max_epsilon=3.0)
    report = fit(private, progress=False)
    assert report.stopped_by == "budget"
    assert report.last.epsilon <= 3.0 < private.plan.epsilon(report.last.steps + 1).upper
    assert math.isnan(report.last.score)


def test_patience_ends_the_run_and_the_best_model_is_kept():
    scores = iter([0.5, 0.9, 0.8, 0.7, 0.6, 0.5])
    kept = []

    def evaluate(model):
        kept.append(model[0].weight.detach().clone())
        return next(scores)

    private = private_run(epochs=6)
    report = fit(private, evaluate=evaluate, patience=2, keep_best=True, progress=False)
    assert (report.stopped_by, report.last.epoch) == ("patience", 4)
    assert report.best.epoch == 2
    assert torch.equal(private.model[0].weight, kept[1])


def interrupted_run(folder, kill_at, seed):
    """Run, be killed in the middle of a step, resume, and so on to the end."""
    while True:
        private = private_run(seed=seed, optimizer=torch.optim.Adam)
        resume = folder.exists()
        try:
            original = private.optimizer.inner.step

            def step(original=original, private=private):
                if kill_at and private.optimizer.num_steps + 1 == kill_at[0]:
                    kill_at.pop(0)
                    raise Killed
                original()

            private.optimizer.inner.step = step
            return private, fit(
                private, checkpoint=folder, resume=resume, evaluate=lambda model: 0.0, progress=False
            )
        except Killed:
            ledger = json.loads((folder / "ledger.json").read_text())
            recorded = len(Accountant.from_state_dict(ledger["ledger"]))
            assert recorded >= private.optimizer.num_steps + 1


def test_a_run_killed_three_times_ends_as_if_it_never_had_been(tmp_path):
    whole = private_run(optimizer=torch.optim.Adam)
    fit(whole, evaluate=lambda model: 0.0, progress=False)
    killed, report = interrupted_run(tmp_path / "run", [3, 17, 38], seed=7)
    for one, other in zip(whole.model.parameters(), killed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert len(killed.accountant) == 40
    assert [row.epoch for row in report.rows] == [1, 2, 3, 4]


def test_a_secure_run_is_resumed_with_the_same_noise_and_then_forgets_its_key(tmp_path):
    folder = tmp_path / "run"
    private = private_run(seed=None)
    ends = []

    def evaluate(model):
        ends.append(model[0].weight.detach().clone())
        if len(ends) == 2:
            raise Killed
        return 0.0

    with pytest.raises(Killed):
        fit(private, checkpoint=folder, evaluate=evaluate, progress=False)
    assert stat.S_IMODE(os.stat(folder / "checkpoint.pt").st_mode) == 0o600
    again = private_run(seed=None)
    fit(again, checkpoint=folder, resume=True, evaluate=evaluate, progress=False)
    assert torch.equal(ends[1], ends[2])  # epoch 2, twice
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert state["randomness"] is None
    with pytest.raises(CheckpointError, match="finished"):
        fit(private_run(seed=None), checkpoint=folder, resume=True, progress=False)


def test_a_folder_in_use_is_not_overwritten(tmp_path):
    fit(private_run(epochs=1), checkpoint=tmp_path / "run", progress=False)
    with pytest.raises(CheckpointError, match="resume=True"):
        fit(private_run(), checkpoint=tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:200] + b"\x00" * 400 + content[600:],
        lambda content: b"nothing of the kind",
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_line_and_nothing_changes(tmp_path, damage):
    stopped = lambda model: (_ for _ in ()).throw(Killed)  # noqa: E731
    with pytest.raises(Killed):
        fit(private_run(), checkpoint=tmp_path, evaluate=stopped, progress=False)
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(damage(path.read_bytes()))
    again = private_run()
    before = again.model[0].weight.clone()
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt is damaged") as refused:
        fit(again, checkpoint=tmp_path, resume=True, progress=False)
    assert "\n" not in str(refused.value)
    assert torch.equal(again.model[0].weight, before)
    assert len(again.accountant) == 0


@pytest.mark.parametrize("missing", ["ledger", "model", "optimizer", "randomness", "torch_rng", "rows"])
def test_a_checkpoint_without_one_of_its_parts_is_damaged(tmp_path, missing):
    with pytest.raises(Killed):
        fit(
            private_run(),
            checkpoint=tmp_path,
            evaluate=lambda model: (_ for _ in ()).throw(Killed),
            progress=False,
        )
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    del state[missing]
    torch.save(state, tmp_path / "checkpoint.pt")
    again = private_run()
    with pytest.raises(CheckpointError, match=f"is damaged \\(it has no {missing}\\)"):
        fit(again, checkpoint=tmp_path, resume=True, progress=False)
    assert len(again.accountant) == 0


@pytest.mark.parametrize(
    "change", [{"clip_norm": 0.6}, {"noise_multiplier": 0.9}, {"epochs": 5}, {"norm": 1.0}]
)
def test_a_run_of_another_plan_is_not_resumed_and_nothing_changes(tmp_path, change):
    private = private_run()
    with pytest.raises(Killed):
        fit(
            private, checkpoint=tmp_path, evaluate=lambda model: (_ for _ in ()).throw(Killed), progress=False
        )
    other = private_run(**change)
    before = other.model[0].weight.clone()
    with pytest.raises(CheckpointError, match="is of a run with"):
        fit(other, checkpoint=tmp_path, resume=True, progress=False)
    assert torch.equal(other.model[0].weight, before)
    assert len(other.accountant) == 0


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"patience": 0}, "patience"), ({"patience": 3}, "evaluate"), ({"resume": True}, "checkpoint")],
)
def test_wrong_arguments_are_named(wrong, named):
    with pytest.raises(ValueError, match=named):
        fit(private_run(), progress=False, **wrong)


def test_a_schedule_is_resumed_too(tmp_path):
    rates = []
    for kill in (True, False):
        private = private_run()
        scheduler = torch.optim.lr_scheduler.StepLR(private.optimizer, 1, gamma=0.5)
        calls = []

        def evaluate(model, kill=kill, calls=calls):
            calls.append(1)
            if kill and len(calls) == 3:
                raise Killed
            return 0.0

        try:
            fit(
                private,
                checkpoint=tmp_path,
                resume=not kill,
                scheduler=scheduler,
                evaluate=evaluate,
                progress=False,
            )
        except Killed:
            continue
        rates.append(private.optimizer.param_groups[0]["lr"])
    assert rates == [0.3 * 0.5**4]
