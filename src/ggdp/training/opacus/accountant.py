# SPDX-License-Identifier: Apache-2.0
"""The accountant "ggdp" of Opacus: steps with any exponent and norm, and a certified epsilon."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from opacus.accountants import IAccountant, register_accountant
from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer

from ggdp import arguments
from ggdp.accounting import Accountant, Bounds, from_opacus_state_dict
from ggdp.distributions import GeneralizedGaussian
from ggdp.errors import EpsilonTooLargeError
from ggdp.mechanisms import AdditiveNoise, Batched, PoissonSampled
from ggdp.mechanisms.batches import Sampling
from ggdp.training.opacus.optimizer import GGOptimizer

MECHANISM = "ggdp"
_OPACUS_MECHANISMS = ("rdp", "prv", "gdp")
_FIELDS = {"mechanism", "history", "ledger", "steps_without_price"}
NOT_POISSON = 0.0  # the rate of a step on other batches, for which no epsilon is proved


class Entry(NamedTuple):
    """Equal steps of a history; the first three fields are what Opacus's own accountants keep.

    `sampling` is the text of a `ggdp.Sampling` where batches are no Poisson samples; `sample_rate` is then
    the share of the examples that a batch has.
    """

    noise_multiplier: float
    sample_rate: float
    num_steps: int
    beta: float = 2.0
    norm: float | str = 2.0
    dimension: int | float = 1
    sampling: str | None = None

    def step(self) -> AdditiveNoise | PoissonSampled | Batched:
        """One of the steps, per unit of the clipping norm."""
        noise = GeneralizedGaussian.from_noise_multiplier(self.beta, self.noise_multiplier)
        norm = math.inf if self.norm == "inf" else self.norm
        released = AdditiveNoise(noise, sensitivity=1.0, norm=norm, dimension=self.dimension)
        rate = arguments.real("sample_rate", self.sample_rate, above=0.0)
        if self.sampling is not None:
            return Sampling.parse(self.sampling).of(released)
        rate = arguments.real("sample_rate", rate, above=0.0, most=1.0)
        return PoissonSampled(released, rate) if rate < 1.0 else released


class _History(list[Entry]):
    """The entries of a history. A change of this list, such as `append`, changes what is recorded."""

    def __init__(self, entries: Iterable[Entry], accountant: "GGAccountant") -> None:
        super().__init__(entries)
        self._accountant = accountant

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)  # a copy is a plain list: changing it changes nothing else


def _that_records(name: str) -> Callable[..., Any]:
    """The method of a list that changes it, for a history; what the accountant refuses changes nothing."""

    def changed(self: _History, *given: Any, **named: Any) -> Any:
        entries: list[Any] = list(self._accountant.history)  # with the steps taken since the list was made
        found = getattr(entries, name)(*given, **named)
        self._accountant.history = entries
        list.__init__(self, self._accountant.history)
        return self if name in ("__iadd__", "__imul__") else found

    return changed


for _name in (
    *("append", "extend", "insert", "pop", "remove", "clear", "reverse", "sort"),
    *("__setitem__", "__delitem__", "__iadd__", "__imul__"),
):
    setattr(_History, _name, _that_records(_name))


class GGAccountant(IAccountant):  # type: ignore[misc]
    """An accountant for Opacus, with a certified epsilon: `PrivacyEngine(accountant="ggdp")` uses it.

    It records every step with its noise multiplier, rate, beta, norm and dimension.
    The ledger is a `ggdp.Accountant`, whose epsilon is exact for beta = 2 with norm 2 and for norm 1, and a
    certified bound by Renyi divergences otherwise. Neighbours differ by one example added or removed.

    Guarantees:
        1. `get_epsilon` is an upper bound of the epsilon of all steps recorded. It is infinite if a step had
           no noise, or was made on batches that are no Poisson samples.
        2. `load_state_dict` restores exactly what `state_dict` described, through JSON too; what it refuses
           changes nothing. Histories of Opacus's accountants "rdp", "prv" and "gdp" are read as what they
           are: Gaussian noise, clipped in l_2.

    >>> from opacus.accountants import create_accountant
    >>> accountant = create_accountant("ggdp")
    >>> accountant.history = [(1.0, 0.01, 500)]
    >>> round(accountant.get_epsilon(delta=1e-6), 6)
    1.580332
    """

    def __init__(self) -> None:
        self._ledger = Accountant()
        self._unpriced: dict[tuple[float, float], int] = {}  # counts by noise multiplier and rate
        super().__init__()

    @property
    def ledger(self) -> Accountant:
        """The steps that have a price: with noise, on Poisson batches."""
        return self._ledger

    @property
    def history(self) -> list[Entry]:
        """What was recorded, one entry per distinct step, in the order of their first use.

        Setting it replaces what is recorded, and changing the list changes what is recorded, as with Opacus's
        accountants; Opacus's triples stand for Gaussian noise clipped in l_2.
        """
        recorded = self._ledger.mechanism
        entries = [_entry(step, times) for step, times in recorded.parts] if recorded else []
        entries += [Entry(*kind, times) for kind, times in self._unpriced.items()]
        return _History(entries, self)

    @history.setter
    def history(self, entries: Iterable[Iterable[Any]]) -> None:
        fresh = Accountant()
        unpriced: dict[tuple[float, float], int] = {}
        for given in entries:
            entry = Entry(*given)
            kind = (entry.noise_multiplier, entry.sample_rate)
            if entry.noise_multiplier == 0.0 or entry.sample_rate == NOT_POISSON:
                unpriced[kind] = unpriced.get(kind, 0) + entry.num_steps
            else:
                fresh.step(entry.step(), entry.num_steps)
        self._ledger, self._unpriced = fresh, unpriced

    def step(
        self,
        *,
        noise_multiplier: float,
        sample_rate: float,
        beta: float = 2.0,
        norm: float | str | None = None,
        dimension: int | float = 1,
    ) -> None:
        """Record one step; without beta, norm and dimension it is Opacus's: Gaussian, clipped in l_2.

        Raises:
            ValueError: the accountant does not cover the step; nothing is recorded.
        """
        if noise_multiplier == 0.0:
            return self._step_without_price(0.0, sample_rate)
        entry = Entry(noise_multiplier, sample_rate, 1, beta, 2.0 if norm is None else norm, dimension)
        return self._ledger.step(entry.step())

    def _step_without_price(self, noise_multiplier: float, sample_rate: float) -> None:
        kind = (noise_multiplier, sample_rate)
        self._unpriced[kind] = self._unpriced.get(kind, 0) + 1

    def epsilon(self, delta: float) -> Bounds:
        """Certified bounds of the epsilon of everything recorded."""
        if self._unpriced:
            return Bounds(
                math.inf, math.inf, math.inf, "a step without noise, or on batches that are not Poisson"
            )
        return self._ledger.epsilon(delta=delta)

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """The certified upper bound of epsilon; what tunes Opacus's own accountants is ignored.

        It is infinite where epsilon is too large to be computed, so that Opacus's search for a noise
        multiplier goes on past such ones.
        """
        try:
            return self.epsilon(delta).upper
        except EpsilonTooLargeError:
            return math.inf

    def __len__(self) -> int:
        """The number of steps recorded."""
        return len(self._ledger) + sum(self._unpriced.values())

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows this accountant."""
        return MECHANISM

    def get_optimizer_hook_fn(
        self, sample_rate: float, sampling: str | None = None
    ) -> Callable[[DPOptimizer], None]:
        """What an optimizer calls before each logical step: it records the step that this optimizer takes.

        A `sample_rate` of 0 stands for batches of which nothing is known: their steps have no price.
        `sampling` says how batches are drawn that are no Poisson samples.
        """
        priced: dict[tuple[Any, ...], Any] = {}  # the last step and what it is, which seldom changes

        def record(optimizer: DPOptimizer) -> None:
            if sample_rate == NOT_POISSON or optimizer.noise_multiplier == 0.0:
                return self._step_without_price(optimizer.noise_multiplier, sample_rate)
            self._check_countable(optimizer)
            own = isinstance(optimizer, GGOptimizer)
            beta, norm = (optimizer.beta, optimizer.norm) if own else (2.0, 2.0)
            dimension = sum(parameter.numel() for parameter in optimizer.params)
            key = (optimizer.noise_multiplier, beta, norm, dimension)
            if key not in priced:
                priced.clear()
                priced[key] = Entry(key[0], sample_rate, 1, beta, norm, dimension, sampling).step()
            return self._ledger.step(priced[key])

        return record

    @staticmethod
    def _check_countable(optimizer: DPOptimizer) -> None:
        if isinstance(optimizer, AdaClipDPOptimizer):
            raise ValueError(
                'clipping must be "flat" or "per_layer", got "adaptive": its threshold depends on the size '
                "of the batch, which is data and gets no noise"
            )
        if optimizer.accumulated_iterations > 1:
            raise ValueError(
                f"one step must come from one batch, got {optimizer.accumulated_iterations} accumulated: an "
                "example may be in several of them and then moves the sum by more than max_grad_norm; "
                "use opacus.utils.batch_memory_manager.BatchMemoryManager to split large batches"
            )

    def state_dict(self, destination: Any = None) -> Any:
        """Everything as data that `json.dumps` takes: the ledger, and the history for human readers."""
        state = {} if destination is None else destination
        state["mechanism"] = MECHANISM
        state["history"] = [
            ["inf" if value == math.inf else value for value in entry[: None if entry.sampling else -1]]
            for entry in self.history
        ]
        state["ledger"] = self._ledger.state_dict()
        state["steps_without_price"] = [[*kind, times] for kind, times in self._unpriced.items()]
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Replace what is recorded by a state of this accountant, or of one of Opacus's own.

        Raises:
            ValueError: the state is neither, or contradicts itself; nothing changes.
        """
        arguments.instance("state_dict", state_dict, Mapping, hint="pass accountant.state_dict()")
        loaded = GGAccountant()
        if state_dict.get("mechanism") in _OPACUS_MECHANISMS:
            if state_dict.get("history") not in ([], ()):
                from_opacus_state_dict(state_dict)  # names what is wrong
            loaded.history = state_dict["history"]
        else:
            loaded._read(state_dict)
        self._ledger, self._unpriced = loaded._ledger, loaded._unpriced

    def _read(self, state: Mapping[str, Any]) -> None:
        arguments.one_of("mechanism", state.get("mechanism"), (MECHANISM, *_OPACUS_MECHANISMS))
        if set(state) != _FIELDS:
            raise ValueError(
                f"state_dict must have the fields {sorted(_FIELDS)}, got {sorted(map(str, state))}"
            )
        self._ledger = Accountant.from_state_dict(state["ledger"])
        if self._ledger.budget is not None or self._ledger.adjacency is not Accountant().adjacency:
            raise ValueError(
                "ledger must be one of adding and removing examples without a budget, got another"
            )
        for multiplier, rate, times in _triples(state["steps_without_price"]):
            kind = arguments.real("noise_multiplier", multiplier), arguments.real("sample_rate", rate)
            self._unpriced[kind] = arguments.whole("steps_without_price", times)
        arguments.instance("history", state["history"], (list, tuple))
        history = [list(entry) if isinstance(entry, tuple) else entry for entry in state["history"]]
        if history != self.state_dict()["history"]:
            raise ValueError("history must say what ledger says, got a state whose two records disagree")


def _triples(entries: Any) -> list[Any]:
    arguments.instance("steps_without_price", entries, (list, tuple))
    if not all(isinstance(entry, (list, tuple)) and len(entry) == 3 for entry in entries):
        raise ValueError(
            "steps_without_price must hold (noise_multiplier, sample_rate, num_steps), got "
            f"{arguments.shown(entries)}"
        )
    return list(entries)


def _entry(step: Any, times: int) -> Entry:
    released: Any = step if isinstance(step, AdditiveNoise) else step.mechanism
    multiplier = released.noise.scale / (math.sqrt(2.0) * released.sensitivity)
    sampling = str(Sampling.behind(step)) if isinstance(step, Batched) else None
    rate = 1.0 if step is released else step.rate
    return Entry(multiplier, rate, times, released.noise.beta, released.norm, released.dimension, sampling)


def registered() -> type[GGAccountant]:
    """Make `create_accountant("ggdp")` and `PrivacyEngine(accountant="ggdp")` work."""
    register_accountant(MECHANISM, GGAccountant, force=True)
    return GGAccountant
