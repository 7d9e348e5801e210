# SPDX-License-Identifier: Apache-2.0
"""fit: reports, stops, checkpoints, and runs killed at any moment."""

import contextlib
import json
import math
import pickle
import shutil

import pytest
import torch
from torch.utils.data import DataLoader

from ggdp import Accountant, secure_generator
from ggdp.training import CheckpointError, accuracy_on, fit, make_private
from ggdp.training.weight_average import WeightAverage
from training.models import blobs, generator, small_net

SETTINGS = {"clip_norm": 0.5, "noise_multiplier": 1.0, "delta": 1e-6, "epochs": 4}


class Killed(BaseException):
    """Stands for the end of a process: nothing in the library catches it."""


def private_run(beta=2.0, seed=7, optimizer=torch.optim.SGD, **settings):
    model = small_net()
    parts = (model, optimizer(model.parameters(), lr=0.3), DataLoader(blobs(), batch_size=40))
    return make_private(
        *parts, beta=beta, **(SETTINGS | settings), generator=None if seed is None else generator(seed)
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


def test_declines_end_the_run_only_where_every_epoch_was_worse_than_the_one_before():
    scores = iter([0.5, 0.9, 0.8, 0.85, 0.8, 0.7, 0.6])
    report = fit(private_run(epochs=7), evaluate=lambda model: next(scores), declines=2, progress=False)
    assert (report.stopped_by, report.last.epoch) == ("patience", 6)
    with pytest.raises(ValueError, match="evaluate must be given with declines"):
        fit(private_run(), declines=2, progress=False)


def released_by(private):
    """A list that gets the noisy mean of every release from now on."""
    seen = []
    weight = private.model[0].weight
    private.optimizer.register_step_pre_hook(lambda *_: seen.append(weight.grad.clone()))
    return seen


def interrupted_run(folder, kill_at, *, seed=7, beta=2.0, save_every=30.0, **settings):
    """Run, be killed in the middle of a step, resume, and so on to the end; also gives all releases."""
    released = []
    for kill in (*kill_at, None):
        private = private_run(seed=seed, beta=beta, optimizer=torch.optim.Adam, **settings)
        seen = released_by(private)

        def killed(*_, private=private, kill=kill):
            if kill is not None and private.optimizer.steps + 1 >= kill:
                raise Killed

        private.optimizer.register_step_pre_hook(killed)
        options = {"checkpoint": folder, "save_every": save_every, "evaluate": lambda model: 0.0}
        try:
            report = fit(private, resume=folder.exists(), progress=False, **options)
        except Killed:
            released += seen
            assert ledger_on_disk(folder) >= len(released)
        else:
            return private, report, released + seen


def ledger_on_disk(folder):
    return len(Accountant.from_state_dict(json.loads((folder / "ledger.json").read_text())["ledger"]))


def test_a_run_killed_three_times_ends_with_its_plan_and_has_paid_for_every_release(tmp_path):
    private, report, released = interrupted_run(tmp_path / "run", [3, 17, 38])
    assert report.stopped_by == "plan"
    assert [row.steps for row in report.rows] == [10, 20, 30, 40]
    assert len(private.accountant) == ledger_on_disk(tmp_path / "run") == 40 + report.steps_lost
    assert 40 + 3 <= len(released) <= len(private.accountant)
    last = report.last
    assert last.epsilon == private.plan.epsilon(40 + report.steps_lost).upper
    assert last.epsilon_lower == private.plan.epsilon(40).lower  # the steps lost need not have been released


@pytest.mark.parametrize("source", ["seed", "key"])
def test_a_resumed_run_uses_no_noise_twice(tmp_path, source):
    """Noise used on two sums is removed by subtracting them. Of a constant loss, noise is all there is."""
    released = []
    for attempt in range(3):
        model = small_net()
        drawn = generator(7) if source == "seed" else secure_generator(key=bytes(32))
        private = make_private(
            model,
            torch.optim.SGD(model.parameters(), lr=0.3),
            DataLoader(blobs(), batch_size=40),
            beta=2.0,
            **SETTINGS,
            generator=drawn,
        )
        seen = released_by(private)
        private.optimizer.register_step_post_hook(
            lambda *_, seen=seen, attempt=attempt: kill() if len(seen) == 14 and attempt < 2 else None
        )
        with contextlib.suppress(Killed):
            fit(
                private,
                loss=lambda output, _: 0.0 * output.sum(dim=1).mean(),
                checkpoint=tmp_path,
                resume=attempt > 0,
                progress=False,
            )
        released += seen
    values = torch.stack([each[0, 0] for each in released])
    assert len(values) == 14 + 14 + 20
    assert len(values.unique()) == len(values)


def kill():
    raise Killed


def test_a_budget_holds_over_interruptions_and_the_run_ends_before_its_plan(tmp_path):
    settings = {"beta": 2.0, "noise_multiplier": None, "target_epsilon": 3.0}
    private, report, released = interrupted_run(tmp_path / "run", [4, 9, 13, 22], **settings)
    assert report.stopped_by == "budget"
    assert report.last.steps < 40
    assert len(released) <= len(private.accountant) <= private.plan.steps
    assert 2.9 < report.last.epsilon <= 3.0


def test_a_run_is_saved_within_an_epoch_so_that_little_is_lost(tmp_path):
    _, report, released = interrupted_run(tmp_path / "run", [4, 9], save_every=1e-9)
    assert report.steps_lost == 2  # the two that were killed half-way
    assert len(released) == 42


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_error_within_an_epoch_saves_the_run_so_that_no_step_is_lost(tmp_path, error):
    private = private_run()

    def loss(output, target):
        if private.optimizer.steps == 16:
            raise error
        return torch.nn.functional.cross_entropy(output, target)

    with pytest.raises(error):
        fit(private, loss=loss, checkpoint=tmp_path, progress=False)
    assert ledger_on_disk(tmp_path) == 16
    again = private_run()
    released = released_by(again)
    report = fit(again, checkpoint=tmp_path, resume=True, progress=False)
    assert (len(released), report.steps_lost) == (24, 0)
    assert [row.steps for row in report.rows] == [10, 20, 30, 40]


def test_a_step_that_was_cut_off_is_not_saved_and_stays_charged(tmp_path):
    private = private_run()

    def fail(*_):
        if private.optimizer.steps == 16:
            raise OSError

    private.optimizer.register_step_pre_hook(fail)
    with pytest.raises(OSError):
        fit(private, checkpoint=tmp_path, progress=False)
    assert ledger_on_disk(tmp_path) == 17
    report = fit(private_run(), checkpoint=tmp_path, resume=True, progress=False)
    assert (report.last.steps, report.steps_lost) == (40, 7)  # from the end of the first epoch


def test_a_checkpoint_holds_no_generator_and_no_key(tmp_path):
    with pytest.raises(Killed):
        fit(private_run(seed=None), checkpoint=tmp_path, evaluate=lambda model: kill(), progress=False)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert set(state) == {
        *("format", "finished", "plan", "ledger", "steps", "model", "optimizer", "kept", "rows"),
        *("best", "seconds", "epoch_end"),
    }
    assert set(json.loads((tmp_path / "ledger.json").read_text())) == {"format", "plan", "ledger"}


def test_a_finished_run_is_not_resumed(tmp_path):
    fit(private_run(epochs=1), checkpoint=tmp_path, progress=False)
    with pytest.raises(CheckpointError, match="finished"):
        fit(private_run(epochs=1), checkpoint=tmp_path, resume=True, progress=False)


def test_a_run_that_has_taken_steps_is_not_overwritten_by_an_older_ledger(tmp_path):
    private = private_run()
    with pytest.raises(Killed):
        fit(private, checkpoint=tmp_path, evaluate=lambda model: kill(), progress=False)
    with pytest.raises(CheckpointError, match="ledger that holds steps"):
        fit(private, checkpoint=tmp_path, resume=True, progress=False)
    assert len(private.accountant) == 10


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory):
    """The folder of a run that was killed after its first epoch."""
    folder = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        fit(private_run(), checkpoint=folder, on_epoch=lambda row: kill(), progress=False)
    return folder


@pytest.fixture
def killed_folder(killed_once, tmp_path):
    return shutil.copytree(killed_once, tmp_path / "run")


def rewritten(folder, **changes):
    """The checkpoint with some of its fields replaced."""
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    torch.save(state | changes, folder / "checkpoint.pt")


def test_a_ledger_forged_in_the_checkpoint_does_not_lower_what_is_reported(killed_folder):
    rewritten(killed_folder, ledger=private_run().plan.ledger().state_dict())
    private = private_run()
    report = fit(private, checkpoint=killed_folder, resume=True, progress=False)
    assert len(private.accountant) == 40
    assert report.last.epsilon == private.plan.epsilon(40).upper


def test_a_ledger_on_disk_that_was_put_back_does_not_lower_what_is_reported(killed_folder):
    ledger = json.loads((killed_folder / "ledger.json").read_text())
    ledger["ledger"] = private_run().plan.ledger().state_dict()
    (killed_folder / "ledger.json").write_text(json.dumps(ledger))
    private = private_run()
    fit(private, checkpoint=killed_folder, resume=True, progress=False)
    assert len(private.accountant) == 40


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_files_that_do_not_say_who_is_a_neighbour_are_of_added_and_removed_examples(killed_folder, adjacency):
    state = torch.load(killed_folder / "checkpoint.pt", weights_only=True)
    ledger = json.loads((killed_folder / "ledger.json").read_text())
    for file in (state, ledger):
        del file["plan"]["adjacency"], file["plan"]["sampling"]
    torch.save(state, killed_folder / "checkpoint.pt")
    (killed_folder / "ledger.json").write_text(json.dumps(ledger))
    private = private_run(adjacency=adjacency)
    if adjacency == "replace":
        with pytest.raises(CheckpointError, match="is of a run with adjacency = 'add-remove', got 'replace'"):
            fit(private, checkpoint=killed_folder, resume=True, progress=False)
    else:
        assert fit(private, checkpoint=killed_folder, resume=True, progress=False).last.steps == 40


def transposed(state):
    return {name: value.T if name == "0.weight" else value for name, value in state.items()}


DAMAGE = {
    "no ledger": lambda folder: (folder / "ledger.json").unlink(),
    "no checkpoint": lambda folder: (folder / "checkpoint.pt").unlink(),
    "a garbled ledger": lambda folder: (folder / "ledger.json").write_text('{"format": 2, "pl'),
    "a ledger without an end": lambda folder: (folder / "ledger.json").write_text("[" * 100_000),
    "a ledger of nothing": lambda folder: (folder / "ledger.json").write_text("[]"),
    "a cut checkpoint": lambda folder: (folder / "checkpoint.pt").write_bytes(
        (folder / "checkpoint.pt").read_bytes()[:-200]
    ),
    "a pickle": lambda folder: (folder / "checkpoint.pt").write_bytes(pickle.dumps(print, protocol=4)),
    "code": lambda folder: torch.save({"run": print}, folder / "checkpoint.pt"),
    "text": lambda folder: (folder / "checkpoint.pt").write_text("not a checkpoint\n"),
    "nothing": lambda folder: (folder / "checkpoint.pt").write_bytes(b""),
    "a list": lambda folder: torch.save([1, 2], folder / "checkpoint.pt"),
    "another format": lambda folder: rewritten(folder, format=1),
    "rows that are none": lambda folder: rewritten(folder, rows=[{"epoch": "one"}]),
    "steps that are no number": lambda folder: rewritten(folder, steps="ten"),
    "an optimizer that is none": lambda folder: rewritten(folder, optimizer={"state": 3}),
    "another scheduler": lambda folder: rewritten(folder, kept={"scheduler": {}}),
    "other shapes": lambda folder: rewritten(folder, model=transposed(small_net().state_dict())),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_folder_is_one_line_and_nothing_changes(killed_folder, damage):
    damage(killed_folder)
    private = private_run()
    before = {name: value.clone() for name, value in private.model.state_dict().items()}
    with pytest.raises(CheckpointError) as refusal:
        fit(private, checkpoint=killed_folder, resume=True, progress=False)
    assert len(str(refusal.value).splitlines()) == 1
    assert str(killed_folder) in str(refusal.value)
    assert "weights_only" not in str(refusal.value)  # PyTorch's advice, to run what the file holds
    for name, value in private.model.state_dict().items():
        assert torch.equal(value, before[name])
    assert (len(private.accountant), private.optimizer.steps) == (0, 0)
    assert not private.optimizer.state_dict()["state"]


def test_what_killed_saves_have_left_is_removed_at_the_next_start(killed_folder):
    stale = [killed_folder / name for name in (".checkpoint.pt.x1y2", ".ledger.json.z3")]
    for file in stale:
        file.write_bytes(b"half")
    fit(private_run(), checkpoint=killed_folder, resume=True, progress=False)
    assert not any(file.exists() for file in stale)


def test_two_runs_do_not_share_a_folder_at_the_same_time(tmp_path):
    def second(row):
        with pytest.raises(CheckpointError, match="in use"):
            fit(private_run(), checkpoint=tmp_path, resume=True, progress=False)

    fit(private_run(epochs=1), checkpoint=tmp_path, on_epoch=second, progress=False)


def test_an_average_of_the_weights_goes_on_where_it_was(tmp_path):
    averages, seen = [], []
    for resume in (False, True):
        model = small_net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        average = WeightAverage(model, optimizer, 0.9)
        private = make_private(model, optimizer, DataLoader(blobs(), batch_size=40), beta=2.0, **SETTINGS)
        averages.append(average)
        if resume:
            weight = average.model[0].weight
            private.optimizer.register_step_pre_hook(lambda *_, weight=weight: seen.append(weight.clone()))
        with contextlib.suppress(Killed):
            fit(
                private,
                checkpoint=tmp_path,
                resume=resume,
                keep={"average": average},
                on_epoch=None if resume else (lambda row: kill()),
                progress=False,
            )
    assert [average.state_dict()["steps"] for average in averages] == [10, 40]
    assert torch.equal(seen[0], averages[0].model[0].weight)


def test_fit_averages_weights_scores_the_average_and_leaves_it_in_the_model(tmp_path):
    private, scored = private_run(), []
    states = released_states(private)
    fit(
        private,
        average=0.5,
        evaluate=lambda model: scored.append(model[0].weight.clone()) or 0.0,
        checkpoint=tmp_path,
        progress=False,
    )
    average = small_net()[0].weight.detach().clone()
    for step, state in enumerate(states, start=1):
        decay = min(0.5, (1.0 + step) / (10.0 + step))
        average = decay * average + (1.0 - decay) * state
    assert torch.allclose(private.model[0].weight, average, atol=1e-6)
    assert torch.equal(private.model[0].weight, scored[-1])
    assert not torch.equal(states[-1], scored[-1])


def released_states(private):
    """The weights after every step."""
    seen = []
    weight = private.model[0].weight
    private.optimizer.register_step_post_hook(lambda *_: seen.append(weight.detach().clone()))
    return seen


def test_a_folder_in_use_is_not_overwritten(tmp_path):
    fit(private_run(epochs=1), checkpoint=tmp_path / "run", progress=False)
    with pytest.raises(CheckpointError, match="resume=True"):
        fit(private_run(), checkpoint=tmp_path / "run", progress=False)


@pytest.mark.parametrize(
    "change",
    [{"clip_norm": 0.6}, {"noise_multiplier": 0.9}, {"epochs": 5}, {"norm": 1.0}, {"num_examples": 401}],
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
    [
        ({"patience": 0}, "patience"),
        ({"patience": 3}, "evaluate"),
        ({"resume": True}, "checkpoint"),
        ({"save_every": 0.0}, "save_every"),
    ],
)
def test_wrong_arguments_are_named(wrong, named):
    with pytest.raises(ValueError, match=named):
        fit(private_run(), progress=False, **wrong)


@pytest.mark.parametrize("end", [Killed, KeyboardInterrupt])
def test_a_schedule_is_resumed_too(tmp_path, end):
    """Killed in the third evaluation, the third epoch is repeated; interrupted there, its evaluation is."""
    rates = []
    for kill in (True, False):
        private = private_run()
        scheduler = torch.optim.lr_scheduler.StepLR(private.optimizer, 1, gamma=0.5)
        calls = []

        def evaluate(model, kill=kill, calls=calls):
            calls.append(1)
            if kill and len(calls) == 3:
                raise end
            return 0.0

        try:
            report = fit(
                private,
                checkpoint=tmp_path,
                resume=not kill,
                scheduler=scheduler,
                evaluate=evaluate,
                progress=False,
            )
        except end:
            continue
        rates.append(private.optimizer.param_groups[0]["lr"])
    assert rates == [0.3 * 0.5**4]
    assert [row.steps for row in report.rows] == [10, 20, 30, 40]
    assert report.steps_lost == (10 if end is Killed else 0)
