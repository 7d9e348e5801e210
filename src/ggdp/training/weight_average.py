# SPDX-License-Identifier: Apache-2.0
"""A running average of a model's weights: post-processing of private steps, so it costs no privacy."""

import copy
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from ggdp import arguments

_WARM_UP = 10  # early averages forget faster: after t steps the decay is at most (1 + t) / (10 + t)


class WeightAverage:
    """An exponential average of the weights after every step; averages of noisy steps carry less noise.

    Used for training with noise by De et al. (2022), "Unlocking high-accuracy differentially private image
    classification through scale".

    Args:
        model: it is copied; the copy is a plain module, also of a model that was made private.
        optimizer: steps the model, and updates the average with every step.
        decay: in [0, 1): the average forgets with this factor per step; 0 follows the model itself.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, decay: float) -> None:
        self._decay = arguments.real("decay", decay, least=0.0, below=1.0)
        self._source = model
        self._steps = 0
        self.model = copy.deepcopy(model).requires_grad_(False)
        optimizer.register_step_post_hook(lambda *_: self.update())

    def update(self) -> None:
        """Take in the weights as they are now."""
        self._steps += 1
        decay = min(self._decay, (1.0 + self._steps) / (_WARM_UP + self._steps))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.model.parameters()), list(self._source.parameters()), 1.0 - decay)

    def state_dict(self) -> dict[str, Any]:
        """What a run needs to go on with the average; `ggdp.training.fit` keeps it where it is told to."""
        return {"model": self.model.state_dict(), "steps": self._steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where `state_dict` was called."""
        self.model.load_state_dict(state_dict["model"])
        self._steps = arguments.whole("steps", state_dict["steps"], least=0)
