# SPDX-License-Identifier: Apache-2.0
"""Figure 6 on IMDB: the same sweep with an LSTM; run where there is a GPU, else read from a record."""

import dataclasses
from typing import Any

from ggdp.reproduction import training_accuracy
from ggdp.reproduction.experiment import Numbers, Settings
from ggdp.reproduction.measured import measured_numbers
from ggdp.reproduction.training_accuracy import accuracy_by_beta


def _numbers(settings: Settings, results: list[dict[str, Any]]) -> Numbers:
    return training_accuracy.EXPERIMENT.numbers(settings, results) if results else measured_numbers(settings)


EXPERIMENT = dataclasses.replace(
    training_accuracy.EXPERIMENT,
    name="fig6_imdb",
    numbers=_numbers,
    pictures=lambda settings, numbers: {"fig6_imdb": accuracy_by_beta(settings, numbers)},
    files=lambda settings: (),
    packages=(),
    kept_with="",
    needs_record=True,
)
