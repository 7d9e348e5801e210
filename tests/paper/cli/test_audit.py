# SPDX-License-Identifier: Apache-2.0
"""`ggdp audit`: records, pictures, reports, refusals, and the status of a run that is refuted."""

import dataclasses
import json

import pytest

from ggdp.training.randomness import Randomness

ADULT = ("audit", "--task", "adult", "--synthetic", "--seed", "1", "--beta", "1", "--norm", "1")
SHORT = (
    "--noise-multiplier",
    "0.5",
    "--rate",
    "1",
    "--steps",
    "1",
    "--clip-norm",
    "1",
    "--audit-delta",
    "1e-7",
)


def test_an_audit_leaves_a_record_a_picture_and_a_report(ggdp, tmp_path):
    record, plot, page = (tmp_path / name for name in ("audit.json", "audit.png", "audit.html"))
    done = ggdp(*ADULT, *SHORT, "--record", record, "--plot", plot)
    assert done.code == 0, done.err
    assert "epsilon >= " in done.out
    assert plot.read_bytes().startswith(b"\x89PNG")
    (found,) = json.loads(record.read_text())["results"]
    assert 0.3 < found["lower_epsilon"] <= found["epsilon"]["upper"]
    assert found["num_canaries"] == 2000
    assert found["noise_check"]["passed"]
    assert ggdp("report", record, "--html", page).code == 0
    assert "Audit of a private training run on adult" in page.read_text()


def test_a_run_with_half_the_noise_is_refuted_with_status_1(ggdp, monkeypatch):
    add_noise_ = Randomness.add_noise_

    def weaker(self, tensors, noise):
        add_noise_(self, tensors, dataclasses.replace(noise, scale=noise.scale / 2.0))

    monkeypatch.setattr(Randomness, "add_noise_", weaker)
    done = ggdp(*ADULT, *SHORT, "--canaries", "5000", "--json")
    assert done.code == 1
    (found,) = json.loads(done.out)["results"]
    assert not found["is_consistent"]
    assert not found["noise_check"]["passed"]
    p_values = {one["name"]: one["p_value"] for one in found["noise_check"]["tests"]}
    assert p_values["scale of the noise"] < 1e-9


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--canaries", "3"), "--canaries must be a whole number in [20, 10000000], got 3"),
        (("--confidence", "1"), "--confidence must be a number in [0.5, 1), got 1"),
        (("--method", "hope", "--noise-multiplier", "1"), "--method must be one of one-run"),
        ((), "exactly one of --epsilon and --noise-multiplier must be given, got none"),
    ],
)
def test_a_wrong_option_is_one_line_with_what_is_allowed(ggdp, options, told):
    done = ggdp(*ADULT, *options)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
