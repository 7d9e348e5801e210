# SPDX-License-Identifier: Apache-2.0
"""Two processes over gloo: one release per step in total, with noise added once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scipy import stats

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
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


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


def test_what_goes_wrong_in_one_process_is_heard_in_both(outcomes):
    assert all("no process takes this step" in outcome["bad"] for outcome in outcomes)
