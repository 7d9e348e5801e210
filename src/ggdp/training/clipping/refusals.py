# SPDX-License-Identifier: Apache-2.0
"""What cannot be clipped example by example, and the words in which it is refused."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import UninitializedParameter

from ggdp.errors import UnsupportedModelError


def check_module(path: str, module: nn.Module) -> None:
    """Refuse a module whose output for one example depends on the other examples of the batch.

    Raises:
        UnsupportedModelError: Names the module's path and what to put in its place.
    """
    where = f"module {path or '(the model itself)'}"
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise UnsupportedModelError(
            f"{where} is a {type(module).__name__}, which works on gradients of whole batches; give the "
            "module inside it (.module)"
        )
    if any(kind.__name__ == "FullyShardedDataParallel" for kind in type(module).__mro__):
        raise UnsupportedModelError(
            f"{where} is a FullyShardedDataParallel, whose flat parameters no longer belong to layers; use "
            "torch.distributed.fsdp.fully_shard, which shards each parameter by itself"
        )
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        raise UnsupportedModelError(
            f"{where} is compiled, so that its layers are not called one by one; give the module that was "
            "compiled"
        )
    if isinstance(module, _BatchNorm) and not _never_uses_batch_statistics(module):
        raise UnsupportedModelError(
            f"{where} is a {type(module).__name__}, which mixes the examples of a batch, so that one example "
            f"has no gradient of its own; replace it by nn.GroupNorm({_groups(module.num_features)}, "
            f"{module.num_features})"
        )
    if isinstance(module, _InstanceNorm) and module.track_running_stats:
        raise UnsupportedModelError(
            f"{where} is a {type(module).__name__} with track_running_stats=True, whose running statistics "
            "are released without noise; replace it by one with track_running_stats=False, or by "
            f"nn.GroupNorm({module.num_features}, {module.num_features})"
        )
    if any(isinstance(parameter, UninitializedParameter) for parameter in module.parameters(recurse=False)):
        raise UnsupportedModelError(
            f"{where} is a {type(module).__name__} whose parameters have no shape yet; run one batch through "
            f"the model first"
        )


def batch_norms_of(model: nn.Module) -> list[nn.Module]:
    """Batch normalisations that `check_module` has let pass: frozen ones in evaluation mode."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm)]


def stay_in_evaluation_mode(module: nn.Module, inputs: Any) -> None:
    """A forward pre-hook that refuses batch statistics.

    Raises:
        UnsupportedModelError: The module has been put into training mode.
    """
    if module.training:
        raise UnsupportedModelError(
            f"a frozen {type(module).__name__} mixes the examples of a batch in training mode; put it into "
            "evaluation mode again after model.train()"
        )


def _never_uses_batch_statistics(module: _BatchNorm) -> bool:
    """Frozen and in evaluation mode: a fixed affine map, for as long as it stays so."""
    if not module.track_running_stats:
        return False
    return not module.training and not any(p.requires_grad for p in module.parameters())


def _groups(channels: int) -> int:
    """The largest of the usual group counts that divides the channels."""
    return next(count for count in (32, 16, 8, 4, 2, 1) if channels % count == 0)
