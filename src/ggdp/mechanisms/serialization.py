# SPDX-License-Identifier: Apache-2.0
"""Mechanisms to plain data and back, for JSON files that outlive a version of this package.

The format is one object: `version` (of the format), `kind`, and the fields of that kind. Within a version no
kind ever changes its meaning; what this version does not know is refused, never guessed.
"""

import math
from dataclasses import replace
from typing import Any, TypeVar, cast

from ggdp import arguments
from ggdp.distributions import DiscreteGeneralizedGaussian, GeneralizedGaussian, SphericalGeneralizedGaussian
from ggdp.mechanisms.additive_noise import AdditiveNoise
from ggdp.mechanisms.batches import (
    Batched,
    FixedSizeSampled,
    PoissonSampled,
    RandomAllocation,
    RandomlyTruncatedPoisson,
    Shuffled,
    TruncatedPoisson,
)
from ggdp.mechanisms.composed import Composed
from ggdp.mechanisms.custom import CustomMechanism, GaussianMixtureNoise, OutcomeProbabilities
from ggdp.mechanisms.grid_noise import GridNoise
from ggdp.mechanisms.spherical_noise import SphericalNoise

VERSION = 1
_DEEPEST = 100  # compositions inside one another; `to_dict` writes one

Mechanism = AdditiveNoise | PoissonSampled | Batched | Composed | CustomMechanism
M = TypeVar("M")


def to_dict(mechanism: Mechanism) -> dict[str, Any]:
    """Describe a mechanism as data that `json.dumps` takes, in version 1 of the format.

    >>> from ggdp import Laplace
    >>> data = to_dict(AdditiveNoise(Laplace(scale=2.0)))
    >>> data["kind"], data["noise"]
    ('additive-noise', {'kind': 'generalized-gaussian', 'beta': 1.0, 'scale': 2.0})
    >>> from_dict(data) == AdditiveNoise(Laplace(scale=2.0))
    True
    """
    return {"version": VERSION, **_describe(mechanism)}


def from_dict(data: dict[str, Any]) -> Mechanism:
    """The mechanism that `to_dict` described.

    Raises:
        ValueError: The version or kind is unknown, a field is missing or unknown, or a value is out of range.
    """
    arguments.instance("data", data, dict)
    version = _field(data, "version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(
            f"version must be {VERSION}, got {arguments.shown(version)}; a newer ggdp may know it"
        )
    return _build({name: value for name, value in data.items() if name != "version"}, _DEEPEST)


def from_dict_as(kind: type[M], data: dict[str, Any]) -> M:
    """`from_dict`, for a caller who expects one kind of mechanism."""
    mechanism = from_dict(data)
    if not isinstance(mechanism, kind):
        raise ValueError(f"data must describe {kind.__name__}, got kind {data['kind']!r}")
    return mechanism


def _describe(mechanism: Mechanism) -> dict[str, Any]:
    match mechanism:
        case AdditiveNoise(grid=float(grid)):
            plain = _describe(replace(mechanism, grid=None))
            return {"kind": "rounded-noise", "mechanism": plain, "grid": grid}
        case AdditiveNoise(dimension=1, shift=None):
            return {"kind": "additive-noise", **_noise_and_norm(mechanism)}
        case AdditiveNoise(dimension=dimension, shift=shift):
            return {
                "kind": "vector-noise",  # a kind of its own: a reader that knows only numbers refuses it
                **_noise_and_norm(mechanism),
                "dimension": _finite_or_inf(dimension),
                "shift": None if shift is None else [[value, count] for value, count in shift],
            }
        case PoissonSampled(mechanism=inner, rate=rate):
            return {"kind": "poisson-sampled", "mechanism": _describe(inner), "rate": rate}
        case Batched() if type(mechanism) in _BATCHED_KINDS:
            kind, names = _BATCHED_KINDS[type(mechanism)]
            fields = {name: getattr(mechanism, name) for name in names}
            return {"kind": kind, "mechanism": _describe(mechanism.mechanism), **fields}
        case Composed(parts=parts):
            steps = [{"mechanism": _describe(step), "times": times} for step, times in parts]
            return {"kind": "composed", "parts": steps}
        case OutcomeProbabilities():
            return {
                "kind": "outcome-probabilities",
                "with_record": list(mechanism.with_record),
                "without_record": list(mechanism.without_record),
            }
        case GaussianMixtureNoise():
            return {
                "kind": "gaussian-mixture-noise",
                "weights": list(mechanism.weights),
                "means": list(mechanism.means),
                "stds": list(mechanism.stds),
                "shift": mechanism.shift,
            }
        case SphericalNoise(noise=noise):
            power = {"power": noise.power} if noise.power != 0.0 else {}
            return {
                "kind": "spherical-power-noise" if power else "spherical-noise",
                "beta": noise.beta,
                "scale": noise.scale,
                "dimension": noise.dimension,
                **power,
                "sensitivity": mechanism.sensitivity,
            }
        case GridNoise(noise=discrete):
            return {
                "kind": "grid-noise",
                "noise": {
                    "kind": "discrete-generalized-gaussian",
                    "beta": discrete.beta,
                    "scale": discrete.scale,
                },
                "sensitivity": mechanism.sensitivity,
                "grid": mechanism.grid,
                "dimension": _finite_or_inf(mechanism.dimension),
                "on_grid": mechanism.on_grid,
            }
        case _:
            arguments.instance(
                "mechanism", mechanism, (AdditiveNoise, PoissonSampled, Batched, Composed, CustomMechanism)
            )
            raise ValueError(
                "mechanism must be plain data to be written down, got one described by functions or by a "
                f"class of your own, {type(mechanism).__name__}, which lives in memory; "
                "OutcomeProbabilities, GaussianMixtureNoise, GridNoise and SphericalNoise are plain data"
            )


def _build(data: dict[str, Any], levels: int) -> Mechanism:
    """The mechanism, which may hold others on so many levels below it."""
    arguments.instance("data", data, dict)
    if levels < 0:
        raise ValueError(
            f"data must hold mechanisms inside one another on at most {_DEEPEST} levels, got more; "
            "a composition of compositions means the same as one list of parts"
        )
    kind = _field(data, "kind")
    match kind:
        case "additive-noise":
            _only(data, "noise", "sensitivity", "norm")
            return AdditiveNoise(*_read_noise_and_norm(data))
        case "vector-noise":
            _only(data, "noise", "sensitivity", "norm", "dimension", "shift")
            dimension, shift = _number_or_inf(_field(data, "dimension")), _field(data, "shift")
            return AdditiveNoise(*_read_noise_and_norm(data), dimension=dimension, shift=shift)
        case "rounded-noise":
            _only(data, "mechanism", "grid")
            plain = _build(_field(data, "mechanism"), levels - 1)
            if not isinstance(plain, AdditiveNoise) or plain.grid is not None:
                raise ValueError("mechanism of kind 'rounded-noise' must be additive-noise or vector-noise")
            return replace(plain, grid=_field(data, "grid"))
        case "poisson-sampled":
            _only(data, "mechanism", "rate")
            inner = _build(_field(data, "mechanism"), levels - 1)
            arguments.instance("mechanism", inner, (AdditiveNoise, CustomMechanism))
            return PoissonSampled(cast(AdditiveNoise, inner), _field(data, "rate"))
        case str() if kind in _BATCHED:
            made, names = _BATCHED[kind]
            _only(data, "mechanism", *names)
            inner = _build(_field(data, "mechanism"), levels - 1)
            arguments.instance("mechanism", inner, (AdditiveNoise, CustomMechanism))
            return made(cast(AdditiveNoise, inner), **{name: _field(data, name) for name in names})
        case "outcome-probabilities":
            names = ("with_record", "without_record")
            _only(data, *names)
            return OutcomeProbabilities(*(_list(data, name) for name in names))
        case "gaussian-mixture-noise":
            _only(data, "weights", "means", "stds", "shift")
            weights, means, stds = (_list(data, name) for name in ("weights", "means", "stds"))
            return GaussianMixtureNoise(weights, means, stds, shift=_field(data, "shift"))
        case "spherical-noise" | "spherical-power-noise":
            names = ("beta", "scale", "dimension", *(("power",) if kind == "spherical-power-noise" else ()))
            _only(data, *names, "sensitivity")
            law = SphericalGeneralizedGaussian(*(_field(data, name) for name in names))
            return SphericalNoise(law, _field(data, "sensitivity"))
        case "grid-noise":
            _only(data, "noise", "sensitivity", "grid", "dimension", "on_grid")
            kind = "discrete-generalized-gaussian"
            return GridNoise(
                DiscreteGeneralizedGaussian(*_noise_fields(_field(data, "noise"), kind)),
                _field(data, "sensitivity"),
                _field(data, "grid"),
                _number_or_inf(_field(data, "dimension")),
                _field(data, "on_grid"),
            )
        case "composed":
            _only(data, "parts")
            parts = _field(data, "parts")
            arguments.instance("parts", parts, list)
            return Composed(
                [(_build(_field(part, "mechanism"), levels - 1), _field(part, "times")) for part in parts]
            )
        case _:
            raise ValueError(f"kind must be one of {', '.join(_KINDS)}, got {arguments.shown(kind)}")


_BATCHED: dict[str, tuple[type[Batched], tuple[str, ...]]] = {
    "fixed-size-sampled": (FixedSizeSampled, ("sample_size", "population", "replacement")),
    "truncated-poisson": (TruncatedPoisson, ("rate", "largest_batch", "population")),
    "randomly-truncated-poisson": (RandomlyTruncatedPoisson, ("rate", "largest_batch", "population")),
    "random-allocation": (RandomAllocation, ("steps", "times_used")),
    "shuffled": (Shuffled, ("steps",)),
}
_BATCHED_KINDS = {made: (kind, names) for kind, (made, names) in _BATCHED.items()}
_KINDS = (
    "additive-noise",
    "vector-noise",
    "rounded-noise",
    "poisson-sampled",
    *_BATCHED,
    "composed",
    "outcome-probabilities",
    "gaussian-mixture-noise",
    "grid-noise",
    "spherical-noise",
    "spherical-power-noise",
)


def _list(data: dict[str, Any], name: str) -> Any:
    found = _field(data, name)
    arguments.instance(name, found, list)
    return tuple(found)


def _noise_and_norm(mechanism: AdditiveNoise) -> dict[str, Any]:
    noise = mechanism.noise
    return {
        "noise": {"kind": "generalized-gaussian", "beta": noise.beta, "scale": noise.scale},
        "sensitivity": mechanism.sensitivity,
        "norm": _finite_or_inf(mechanism.norm),
    }


def _read_noise_and_norm(data: dict[str, Any]) -> tuple[GeneralizedGaussian, Any, Any]:
    noise = _noise(_field(data, "noise"))
    return noise, _field(data, "sensitivity"), _number_or_inf(_field(data, "norm"))


def _finite_or_inf(value: Any) -> Any:
    return "inf" if value == math.inf else value  # JSON has no infinity


def _number_or_inf(value: Any) -> Any:
    return math.inf if value == "inf" else value


def _noise(data: dict[str, Any]) -> GeneralizedGaussian:
    return GeneralizedGaussian(*_noise_fields(data, "generalized-gaussian"))


def _noise_fields(data: dict[str, Any], wanted: str) -> tuple[Any, Any]:
    kind = _field(data, "kind")
    if kind != wanted:
        raise ValueError(f"kind of noise must be {wanted}, got {arguments.shown(kind)}")
    _only(data, "beta", "scale")
    return _field(data, "beta"), _field(data, "scale")


def _field(data: dict[str, Any], name: str) -> Any:
    arguments.instance("data", data, dict)
    if name not in data:
        raise ValueError(f"data must have the field {name!r}, got only {sorted(map(str, data))}")
    return data[name]


def _only(data: dict[str, Any], *names: str) -> None:
    unknown = sorted(map(str, set(data) - {"kind", *names}))
    if unknown:
        raise ValueError(
            f"data of kind {data['kind']!r} has unknown fields {unknown}; it takes {sorted(names)}"
        )
