# SPDX-License-Identifier: Apache-2.0
"""Figure 6 on IMDB: the same sweep with an LSTM; run where there is a GPU, else read from a record."""

import dataclasses

from ggdp.reproduction import training_accuracy
from ggdp.reproduction.training_accuracy import accuracy_by_beta

EXPERIMENT = dataclasses.replace(
    training_accuracy.EXPERIMENT,
    name="fig6_imdb",
    pictures=lambda settings, numbers: {"fig6_imdb": accuracy_by_beta(settings, numbers)},
    files=lambda settings: (),
    packages=(),
    kept_with="",
    folders=("aclImdb",),
    needs_record=True,
)
