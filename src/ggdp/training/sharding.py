# SPDX-License-Identifier: Apache-2.0
"""Models sharded by PyTorch's `fully_shard`: every process holds some rows of each parameter.

A layer's parameters are put together for its forward and backward passes and taken apart again. Each process
runs its own examples through whole layers, so that the gradient of an example, and its norm, is found in one
process, as without sharding. What is shared out is everything that lasts: parameters, the sums of clipped
gradients, noise, and the optimizer's state. A sum is added up over the processes layer by layer, and each
process is left with the rows that it holds.

All processes must run the model equally often, since each of them brings a part of every layer. The loader
therefore gives a process that has no examples left one whose gradient is dropped (`Part.filler`).
"""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from torch.utils.hooks import RemovableHandle

from ggdp.distributions.pytorch.sampling import Piece
from ggdp.errors import UnsupportedModelError

_MESSAGE_BYTES = 1 << 25  # sums of small parameters are added up together, up to about so many bytes


@dataclass(frozen=True)
class _Rows:
    """The rows of a parameter that this process holds.

    Attributes:
        shape: Of the whole parameter.
        each: Rows of every process but the last ones, which may have fewer, or none.
        start: The first row here.
        count: Rows here.
    """

    shape: torch.Size
    each: int
    start: int
    count: int

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self.shape[1:].numel()


class Sharding:
    """How the parameters of one model are shared out.

    Args:
        model: As `fully_shard` has left it.
        parameters: The trainable ones.
        rank: This process, of
        world_size: so many.

    Raises:
        UnsupportedModelError: They are shared out in a way that is not supported; the message says which is.
    """

    def __init__(
        self, model: nn.Module, parameters: tuple[nn.Parameter, ...], rank: int, world_size: int
    ) -> None:
        self._model, self._parameters = model, parameters
        self._rank, self._world_size = rank, world_size
        names = {parameter: name for name, parameter in model.named_parameters()}
        self._rows = [self._rows_of(names[parameter], parameter) for parameter in parameters]
        numbers = {parameter: number for number, parameter in enumerate(parameters)}
        self._places: dict[int, tuple[nn.Module, str]] = {
            numbers[parameter]: (module, name)
            for module in model.modules()
            for name, parameter in module._parameters.items()
            if parameter in numbers
        }

    @classmethod
    def of(cls, model: nn.Module, rank: int, world_size: int) -> "Sharding | None":
        """That of a model, or None if its parameters are whole."""
        parameters = tuple(each for each in model.parameters() if each.requires_grad)
        if not any(is_sharded(each) for each in model.parameters()):
            return None
        return cls(model, parameters, rank, world_size)

    def _rows_of(self, name: str, parameter: Any) -> _Rows:
        where = f"parameter {name!r}"
        if not is_sharded(parameter):
            raise UnsupportedModelError(
                f"{where} is whole while others are sharded; call fully_shard on the model itself, after the "
                "modules inside it and without ignored_params"
            )
        mesh, placements = parameter.device_mesh, parameter.placements
        if mesh.ndim != 1 or mesh.size() != self._world_size:
            raise UnsupportedModelError(
                f"{where} is sharded over a mesh of shape {tuple(mesh.shape)} among {self._world_size} "
                "processes; shard it over all of them, as fully_shard does if mesh is left out"
            )
        if not placements[0].is_shard(0):
            raise UnsupportedModelError(
                f"{where} is placed as {placements[0]}; shard its dimension 0, as fully_shard does if "
                "shard_placement_fn is left out"
            )
        local = local_part(parameter)
        if local.device.type != mesh.device_type:
            raise UnsupportedModelError(
                f"{where} waits on {local.device.type} and is used on {mesh.device_type}; leave "
                "offload_policy out of fully_shard"
            )
        shape, each = parameter.shape, -(-parameter.shape[0] // self._world_size)
        start = min(self._rank * each, shape[0])
        rows = _Rows(shape, each, start, min(each, shape[0] - start))
        if local.shape != (rows.count, *shape[1:]):
            raise UnsupportedModelError(
                f"{where} has rows of shape {tuple(local.shape)} in process {self._rank}, expected "
                f"{(rows.count, *shape[1:])}; call fully_shard in all processes on models of the same shape"
            )
        return rows

    @property
    def present(self) -> tuple[Tensor, ...]:
        """The parameters that layers compute with now: whole ones within `whole`."""
        found = (module._parameters[name] for _, (module, name) in sorted(self._places.items()))
        return tuple(each for each in found if each is not None)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Every process has the whole model meanwhile, and may run it as often as it likes.

        All processes enter together.
        """
        groups = [group for module in self._modules for group in _parameter_groups(module)]
        before = [(group.post_forward_mesh_info, group.reshard_after_backward) for group in groups]
        for module in self._modules:
            module.unshard()
        for group in groups:
            group.post_forward_mesh_info, group.reshard_after_backward = None, False
        try:
            yield
        finally:
            for group, (mesh, reshards) in zip(groups, before, strict=True):
                group.post_forward_mesh_info, group.reshard_after_backward = mesh, reshards
            for module in self._modules:
                module.reshard()

    @property
    def _modules(self) -> list[Any]:
        from torch.distributed.fsdp import FSDPModule

        return [module for module in self._model.modules() if isinstance(module, FSDPModule)]

    def watch(self, hook_of: Callable[[int], Callable[[Tensor], None]]) -> list[RemovableHandle]:
        """Have `hook_of(number)` see what autograd finds for each whole parameter, if it finds anything."""
        handles: list[RemovableHandle] = []
        seen: set[Tensor] = set()

        def gathered(*_: Any) -> None:
            if len(seen) == len(self._places):
                return
            for number, (owner, name) in self._places.items():
                parameter = owner._parameters[name]
                if parameter is not None and parameter not in seen and not is_sharded(parameter):
                    seen.add(parameter)
                    handles.append(parameter.register_hook(hook_of(number)))  # type: ignore[no-untyped-call]

        handles.extend(module.register_forward_pre_hook(gathered) for module in self._modules)
        return handles

    def add_up(self, sums: Iterable[Tensor | None], dtype: torch.dtype) -> list[Tensor]:
        """The rows of this process of every parameter's sum, added up over all processes.

        Args:
            sums: The whole sum of every parameter in turn, of this process; None is zero.
            dtype: Of the result.
        """
        found: list[Tensor] = []
        waiting: list[tuple[_Rows, Tensor]] = []
        size = 0
        for number, whole in enumerate(sums):
            rows, device = self._rows[number], self._parameters[number].device
            dealt = torch.zeros(self._world_size * rows.each * rows.width, dtype=dtype, device=device)
            if whole is not None:
                dealt[: rows.shape.numel()].copy_(whole.reshape(-1))
            waiting.append((rows, dealt.view(self._world_size, -1)))
            size += dealt.numel() * dealt.element_size()
            if size >= _MESSAGE_BYTES:
                found.extend(self._dealt_out(waiting))
                waiting, size = [], 0
        found.extend(self._dealt_out(waiting))
        return found

    def _dealt_out(self, waiting: list[tuple[_Rows, Tensor]]) -> Iterator[Tensor]:
        if not waiting:
            return
        together = waiting[0][1] if len(waiting) == 1 else torch.cat([dealt for _, dealt in waiting], dim=1)
        own = torch.empty_like(together[0])
        _reduce_scatter(own, together.reshape(-1))
        sizes = [dealt.shape[1] for _, dealt in waiting]
        for (rows, _), part in zip(waiting, torch.split(own, sizes), strict=True):
            yield part[: rows.count * rows.width].view(rows.count, *rows.shape[1:])

    def pieces(self, sums: list[Tensor]) -> list[Piece]:
        """This process's rows as parts of the whole sums, for noise that is the same however they are cut."""
        return [
            Piece(tensor, rows.start * rows.width, rows.shape.numel())
            for tensor, rows in zip(sums, self._rows, strict=True)
        ]

    def zeros(self, dtype: torch.dtype) -> list[Tensor]:
        """Sums over no examples, the rows of this process."""
        return [torch.zeros_like(local_part(each), dtype=dtype) for each in self._parameters]

    def gradient(self, number: int, own: Tensor) -> Tensor:
        """What a parameter's `.grad` is to hold, from this process's rows."""
        return _from_rows(self._parameters[number], own)


def is_sharded(value: object) -> bool:
    """Whether a tensor is shared out over processes."""
    module = sys.modules.get("torch.distributed.tensor")  # without it there is none
    return module is not None and isinstance(value, module.DTensor)


def class_of(module: nn.Module) -> type[nn.Module]:
    """The class that a module was made of: `fully_shard` gives it a subclass without a forward of its own."""
    kind = type(module)
    fsdp = sys.modules.get("torch.distributed.fsdp")
    is_changed = fsdp is not None and hasattr(fsdp, "FSDPModule") and isinstance(module, fsdp.FSDPModule)
    return kind.__mro__[2] if is_changed else kind


def local_part(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process holds, in the same memory; all of it if it is not sharded."""
    if not is_sharded(tensor):
        return tensor
    with torch.no_grad():
        part: Tensor = tensor.to_local()  # type: ignore[attr-defined]
    return part


def whole_state(state: Any) -> Any:
    """A state with every sharded tensor put together, on the CPU; call it in all processes."""

    def whole(value: Any) -> Any:
        if not is_sharded(value):
            return value
        found = value.full_tensor()
        return found.cpu() if dist.get_rank() == 0 else None

    return tree_map(whole, state)


def own_state(saved: Any, like: Any) -> Any:
    """A whole state, in which tensors take the form that they have in `like`: sharded where it is."""
    if is_sharded(like) and isinstance(saved, Tensor):
        return _from_rows(like, _own_rows(like, saved))
    if isinstance(saved, Mapping) and isinstance(like, Mapping):
        return {name: own_state(each, like.get(name)) for name, each in saved.items()}
    return saved


def own_optimizer_state(saved: dict[str, Any], parameters: list[Tensor]) -> dict[str, Any]:
    """An optimizer's whole state, in which tensors of a parameter's shape take the form of the parameter."""
    state = {
        number: {
            name: own_state(value, parameters[number])
            if isinstance(value, Tensor) and value.shape == parameters[number].shape
            else value
            for name, value in each.items()
        }
        for number, each in saved["state"].items()
    }
    return {**saved, "state": state}


def _own_rows(like: Any, whole: Tensor) -> Tensor:
    each = -(-whole.shape[0] // like.device_mesh.size())
    start = min(like.device_mesh.get_local_rank() * each, whole.shape[0])
    own = whole[start : start + each]
    return own.to(local_part(like).device, like.dtype).clone()


def _from_rows(like: Any, own: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    found: Tensor = DTensor.from_local(
        own, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return found


def _parameter_groups(module: Any) -> list[Any]:
    """What holds a module's settings; its name differs between versions of PyTorch."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    return list(groups) if groups is not None else [group for group in (state._fsdp_param_group,) if group]


def _reduce_scatter(own: Tensor, whole: Tensor) -> None:
    if own.numel():
        newer = getattr(dist, "reduce_scatter_single", None)
        (newer or dist.reduce_scatter_tensor)(own, whole)
