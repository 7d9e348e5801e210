# SPDX-License-Identifier: Apache-2.0
"""Two processes over gloo: one release per step in total, with noise added once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scipy import stats

from training import sharded_runs
from training.two_processes import everything


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    script = Path(__file__).with_name("two_processes.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    paths = [str(script.parents[1]), *sys.path]
    done = subprocess.run(
        [*command, str(script), str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) | {"folder": folder} for rank in range(2)]


@pytest.mark.parametrize("run", ["plain", "wrapped"])
def test_two_processes_end_where_one_does_with_the_same_epsilon(outcomes, run):
    alone = everything(wrapped=False)
    for outcome in outcomes:
        assert (outcome[run]["epsilon"], outcome[run]["steps"]) == (alone["epsilon"], alone["steps"])
        for name, value in alone["model"].items():
            torch.testing.assert_close(outcome[run]["model"][name], value, rtol=1e-4, atol=1e-5)
    for name, value in outcomes[0][run]["model"].items():
        assert torch.equal(value, outcomes[1][run]["model"][name])


def test_noise_is_added_once_in_total_and_not_once_per_process(outcomes):
    first, second = (outcome["noise"].double().numpy() for outcome in outcomes)
    assert (first == second).all()
    assert stats.kstest(first, stats.norm(scale=0.5).cdf).pvalue > 1e-4
    assert stats.kstest(first, stats.norm(scale=0.5 * 2**0.5).cdf).pvalue < 1e-4


@pytest.mark.parametrize(
    ("case", "kind", "message"),
    [
        ("bad", "NonFiniteGradientError", "are NaN or infinite"),
        ("changed", "ParameterError", "the optimizer would move parameter"),
        ("part", "ZeroDivisionError", "division by zero"),
        ("loss", "RuntimeError", "no memory left"),
    ],
)
def test_an_error_in_one_process_ends_all_of_them_with_its_message_before_anything_is_recorded(
    outcomes, case, kind, message
):
    other, own = ([each] if isinstance(each, str) else each for each in (o[case] for o in outcomes))
    assert own[0].startswith(f"{kind}: ")
    assert other[0].startswith(f"OtherProcessError: process 1 could not go on, so no process does: {kind}: ")
    assert message in own[0]
    assert message in other[0]
    assert all(recorded == 0 for recorded in (*own[1:], *other[1:]))


@pytest.mark.parametrize("case", ["bad", "changed"])
def test_after_an_error_in_one_process_no_process_goes_on(outcomes, case):
    assert all("the run has ended in all processes" in outcome[case][0] for outcome in outcomes)


def test_bad_examples_of_one_process_are_left_out_and_counted_in_both(outcomes):
    assert [outcome["left out"] for outcome in outcomes] == [("", 1, 10)] * 2


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "unequal shards",
            "number of examples, got 40 in process 0 and 20 in process 1; give every process ",
        ),
        ("equal shards", "a digest of the examples, got"),
        ("noise", "noise of the plan, got"),
        ("model", "parameters, got"),
        ("clipping", "clipping, got"),
    ],
)
def test_processes_that_were_given_different_things_refuse(outcomes, case, message):
    for outcome in outcomes:
        assert outcome["disagreements"][case].startswith("ValueError: the processes must agree on ")
        assert message in outcome["disagreements"][case]


def test_a_mistake_in_one_process_is_told_to_the_other(outcomes):
    first, second = (outcome["disagreements"]["mistake"] for outcome in outcomes)
    assert second.startswith("ValueError: delta must be")
    assert first.startswith("OtherProcessError: process 1 could not go on")
    assert "delta must be" in first


def test_a_process_without_examples_takes_part_in_every_step(outcomes):
    (first, steps, weight), (second, other_steps, other_weight) = (outcome["empty"] for outcome in outcomes)
    assert 0 < first < steps == other_steps == 20
    assert second == 0
    assert torch.equal(weight, other_weight)


def test_a_run_of_two_processes_is_resumed_from_one_set_of_files(outcomes):
    (weight, rows, files, recorded), (other_weight, *other) = (outcome["resumed"] for outcome in outcomes)
    assert torch.equal(weight, other_weight)
    assert [rows, files, recorded] == other
    assert (rows, recorded) == ([3, 6, 9], 9)
    assert files == ["checkpoint.pt", "ledger.json", "lock"]


@pytest.mark.parametrize("name", sharded_runs.RUNS)
def test_a_sharded_run_ends_where_one_process_does_with_the_same_epsilon(outcomes, name):
    alone = sharded_runs.run(name, sharded=False)
    for outcome in outcomes:
        found = outcome["sharded"]["runs"][name]
        assert found["epsilon"] == alone["epsilon"]
        assert found["checks"] >= 1
        for key, value in alone["model"].items():
            torch.testing.assert_close(found["model"][key], value, rtol=1e-4, atol=1e-5)


def test_noise_drawn_shard_by_shard_is_the_noise_of_one_process_element_by_element(outcomes):
    alone = sharded_runs.noise_alone(sharded=False)
    assert alone["0.weight"].numel() > 1 << 16 > alone["1.weight"].numel()  # both ways of drawing
    for outcome in outcomes:
        for name, value in alone.items():
            assert torch.equal(outcome["sharded"]["noise"][name], value)


def test_each_process_of_a_sharded_run_holds_half_of_everything_that_lasts(outcomes):
    assert [outcome["sharded"]["memory"] for outcome in outcomes] == [0.5, 0.5]


def test_an_error_in_one_process_of_a_sharded_run_ends_both_before_anything_is_recorded(outcomes):
    (other, recorded), (own, also_recorded) = (outcome["sharded"]["error"] for outcome in outcomes)
    assert own.startswith("NonFiniteGradientError: ")
    assert other.startswith("OtherProcessError: process 1 could not go on, so no process does: NonFinite")
    assert recorded == also_recorded == 0


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("one part alone", "UnsupportedModelError: parameter '1.weight' is whole while others are sharded"),
        (
            "after make_private",
            "ParameterError: the model was sharded since make_private; nothing was released",
        ),
        ("columns", "fully_shard does if shard_placement_fn is left out"),
        ("a stray use", "parameter used.weight was used other than by calling the module that holds it"),
        ("parameters beside layers", "module (the model itself) (FSDPTokens) has no rule that works on a"),
        ("average", "ValueError: average must be left out of a run whose model is sharded"),
    ],
)
def test_sharding_that_cannot_be_checked_is_refused_with_the_way_out(outcomes, case, message):
    for outcome in outcomes:
        assert message in outcome["sharded"]["refusals"][case]


def test_a_sharded_run_is_resumed_from_one_set_of_files_also_by_one_process(outcomes):
    killed = [outcome["sharded"]["killed"] for outcome in outcomes]
    saved, by_one = sharded_runs.resumed_by_one(outcomes[0]["folder"])
    for name, value in saved.items():
        assert torch.equal(value, killed[0][name])
        assert torch.equal(value, killed[1][name])
    assert [outcome["sharded"]["resumed"] for outcome in outcomes] == [([3, 6, 9], 9, 0)] * 2
    assert by_one == ([3, 6, 9], 9, 0)
