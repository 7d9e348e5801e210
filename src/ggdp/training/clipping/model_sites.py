# SPDX-License-Identifier: Apache-2.0
"""Chooses, for each part of a model, the rule by which its gradients are clipped."""

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from ggdp.errors import UnsupportedModelError
from ggdp.training.clipping.attention import AttentionSite
from ggdp.training.clipping.convolution import ConvolutionSite
from ggdp.training.clipping.embedding import EmbeddingSite, OwnEmbeddingSite
from ggdp.training.clipping.functional import FunctionalSite
from ggdp.training.clipping.linear import LinearSite, TurnedLinearSite
from ggdp.training.clipping.normalization import NormalizationSite
from ggdp.training.clipping.own_parameters import OwnParametersSite
from ggdp.training.clipping.recurrent import RecurrentSite
from ggdp.training.clipping.refusals import check_module
from ggdp.training.clipping.site import AbstractSite, Tape
from ggdp.training.sharding import class_of

_RULES: tuple[tuple[type[nn.Module], type[AbstractSite]], ...] = (
    (nn.Linear, LinearSite),
    (nn.Conv1d, ConvolutionSite),
    (nn.Conv2d, ConvolutionSite),
    (nn.Conv3d, ConvolutionSite),
    (nn.Embedding, EmbeddingSite),
    (nn.LayerNorm, NormalizationSite),
    (nn.GroupNorm, NormalizationSite),
    (nn.RMSNorm, NormalizationSite),
    (nn.InstanceNorm1d, NormalizationSite),
    (nn.InstanceNorm2d, NormalizationSite),
    (nn.InstanceNorm3d, NormalizationSite),
    (nn.LSTM, RecurrentSite),
    (nn.GRU, RecurrentSite),
    (nn.RNN, RecurrentSite),
    (nn.MultiheadAttention, AttentionSite),
)
# Layers of other libraries that do what one of these does, known by name so that they need not be imported.
_NAMED_RULES: dict[str, type[AbstractSite]] = {
    "transformers.pytorch_utils.Conv1D": TurnedLinearSite,
    "timm.layers.norm.LayerNorm": NormalizationSite,
}
# Holders of parameters that are never called: whoever holds them uses them.
_HOLDERS = (nn.ParameterList, nn.ParameterDict, parametrize.ParametrizationList)


def sites_of(
    model: nn.Module, numbers: dict[nn.Parameter, int], tape: Tape, *, batch_first: bool
) -> list[AbstractSite]:
    """One site per module that uses trainable parameters of its own.

    None is inside another, but for layers in a module whose parameters stand beside them.

    Raises:
        UnsupportedModelError: Some module mixes examples, or cannot be listened to.
    """
    for path, module in model.named_modules(remove_duplicate=False):
        check_module(path, module)
    return [
        _site(module, path, numbers, tape, batch_first=batch_first)
        for path, module in _owners(model, "", numbers, batch_first=batch_first)
    ]


def whole_site(site: AbstractSite, numbers: dict[nn.Parameter, int]) -> AbstractSite:
    """The site that takes a module, and all that is inside it, as one."""
    return _functional(site.module, site.path, numbers, site.tape, batch_first=site.batch_first)


def attach_all(sites: list[AbstractSite]) -> None:
    """Replace the forward of every site's module, or of none."""
    for site in sites:
        try:
            site.attach()
        except UnsupportedModelError:
            for attached in sites:
                attached.detach()
            raise


def layers_of(sites: list[AbstractSite]) -> list[int]:
    """The layer of each site: sites that share a parameter are one layer; layers are numbered from 0."""
    layer_of: dict[int, int] = {}
    parents: list[int] = []

    def root(layer: int) -> int:
        while parents[layer] != layer:
            layer = parents[layer]
        return layer

    for number, site in enumerate(sites):
        parents.append(number)
        for slot in site.slots.values():
            parents[root(layer_of.setdefault(slot, number))] = root(number)
    roots = [root(number) for number in range(len(sites))]
    order = {layer: place for place, layer in enumerate(dict.fromkeys(roots))}
    return [order[layer] for layer in roots]


def _owners(
    module: nn.Module, path: str, numbers: dict[nn.Parameter, int], *, batch_first: bool
) -> Iterator[tuple[str, nn.Module]]:
    """The topmost modules that use trainable parameters of their own, each once."""
    seen: set[nn.Module] = set()

    def walk(module: nn.Module, path: str) -> Iterator[tuple[str, nn.Module]]:
        if module in seen:
            return
        seen.add(module)
        if _uses_own(module, numbers):
            yield path, module
            if not (batch_first and _stand_beside(module)):
                return
        for name, child in module.named_children():
            yield from walk(child, f"{path}.{name}" if path else name)

    return walk(module, path)


def _uses_own(module: nn.Module, numbers: dict[nn.Parameter, int]) -> bool:
    direct = list(module.parameters(recurse=False))
    for child in module.children():
        if isinstance(child, _HOLDERS) or (
            parametrize.is_parametrized(module) and child is module.parametrizations
        ):
            direct.extend(child.parameters())
    if isinstance(module, nn.MultiheadAttention):
        direct.extend(module.out_proj.parameters())  # used without being called
    return any(parameter in numbers for parameter in direct)


def _stand_beside(module: nn.Module) -> bool:
    """Whether a module's own parameters can be told from those of the layers inside it."""
    plain = not any(issubclass(type(module), kind) for kind, _ in _RULES)
    held = any(isinstance(child, _HOLDERS) for child in module.children())
    return (
        plain and not held and not parametrize.is_parametrized(module) and OwnParametersSite.accepts(module)
    )


def _site(
    module: nn.Module, path: str, numbers: dict[nn.Parameter, int], tape: Tape, *, batch_first: bool
) -> AbstractSite:
    if batch_first and _stand_beside(module):
        held = module.named_parameters(recurse=False, remove_duplicate=False)
        own = {name: numbers[each] for name, each in held if each in numbers}
        return OwnParametersSite(module, path, own, tape, batch_first=batch_first)
    rule: type[AbstractSite] = _named_rule(module) or FunctionalSite
    for kind, candidate in _RULES:
        plain = isinstance(module, kind) and type(module).forward is kind.forward
        if plain and not parametrize.is_parametrized(module) and candidate.accepts(module):
            rule = candidate
            break
    if isinstance(module, nn.Embedding) and rule is FunctionalSite and EmbeddingSite.accepts(module):
        rule = OwnEmbeddingSite if not parametrize.is_parametrized(module) else rule
    if rule is FunctionalSite:
        return _functional(module, path, numbers, tape, batch_first=batch_first)
    return rule(module, path, _slots(module, numbers), tape, batch_first=batch_first)


def _slots(module: nn.Module, numbers: dict[nn.Parameter, int]) -> dict[str, int]:
    return {
        name: numbers[parameter]
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if parameter in numbers
    }


def _functional(
    module: nn.Module, path: str, numbers: dict[nn.Parameter, int], tape: Tape, *, batch_first: bool
) -> AbstractSite:
    _check_functional(module, path, batch_first=batch_first)
    return FunctionalSite(module, path, _slots(module, numbers), tape, batch_first=batch_first)


def _named_rule(module: nn.Module) -> type[AbstractSite] | None:
    """The rule for a layer of another library, if there is one."""
    kind = class_of(module)
    rule = _NAMED_RULES.get(f"{kind.__module__}.{kind.__qualname__}")
    if rule is None or parametrize.is_parametrized(module) or getattr(module, "_fast_norm", False):
        return None
    return rule if rule.accepts(module) else None


def _check_functional(module: nn.Module, path: str, *, batch_first: bool) -> None:
    where = f"module {path or '(the model itself)'} ({type(module).__name__})"
    if isinstance(module, nn.Embedding) and (module.max_norm is not None or module.scale_grad_by_freq):
        raise UnsupportedModelError(
            f"{where} has max_norm or scale_grad_by_freq set, which makes a row's gradient depend on other "
            f"examples; leave both out"
        )
    if isinstance(module, nn.RNNBase):
        raise UnsupportedModelError(
            f"{where} projects its states (proj_size) or computes its weights; use a plain one, and nn.Linear"
        )
    if not batch_first:
        raise UnsupportedModelError(
            f"{where} has no rule for batch_first=False; put the examples in dimension 0 of the model's input"
        )
    if any(isinstance(inner, _BatchNorm) for inner in module.modules()):
        raise UnsupportedModelError(f"{where} contains batch normalisation; replace it by nn.GroupNorm")
