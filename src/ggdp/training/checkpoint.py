# SPDX-License-Identifier: Apache-2.0
"""What a run leaves on disk so that it can be stopped at any moment and go on later.

    ledger.json      what the run may have spent by now: written *before* steps are taken, with all of them
    checkpoint.pt    model, optimizer and progress: written after steps were taken

A sharded model (`fully_shard`) is put together for `checkpoint.pt`, so that a run may go on with another
number of processes, or with one. Both files are replaced whole, and neither holds anything secret: no
generator, no key, nothing of the data that was not released with noise. A resumed run draws new batches and
new noise, since the same noise on two sums is removed by subtracting them. Steps that were written into the
ledger and are not in the checkpoint stay charged: they may have been released before the interruption.
"""

import contextlib
import copy
import io
import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_map

from ggdp import arguments
from ggdp.accounting import Accountant
from ggdp.atomic_file import write_atomically
from ggdp.errors import CheckpointError
from ggdp.training.private import Private
from ggdp.training.report import EpochRow
from ggdp.training.sharding import is_sharded, own_optimizer_state, own_state, whole_state

_LEDGER, _CHECKPOINT, _LOCK = "ledger.json", "checkpoint.pt", "lock"
_FORMAT = 2
_BLOCKS_PER_SAVE = 10  # steps are reserved for a tenth of the time between two checkpoints
_FASTER = 4  # at most, from one block of steps to the next


class Stateful(Protocol):
    """Anything that is saved and restored with a run: a scheduler, an average of the weights."""

    def state_dict(self) -> dict[str, Any]:
        """Plain data and tensors."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Go on where `state_dict` was called."""


@dataclass(frozen=True)
class Progress:
    """How far a run has come, beside its model, optimizer and ledger.

    Attributes:
        rows: of the epochs that have ended.
        best: the model's state after the best of them, where it is kept.
        seconds: since the run began, pauses left out.
        epoch_end: the step with which the present epoch ends; 0 between epochs.
    """

    rows: tuple[EpochRow, ...] = ()
    best: dict[str, Any] | None = None
    seconds: float = 0.0
    epoch_end: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """The files of one run, in one folder. With several processes, process 0 writes and reads them for all.

    `save` of a sharded run is called in all processes, that of any other in process 0 alone.

    Attributes:
        folder: of the run.
        private: the run.
        kept: what is saved and restored with it, by name.
    """

    folder: Path
    private: Private
    kept: Mapping[str, Stateful]

    @property
    def exists(self) -> bool:
        """Whether a run has left anything here."""
        names = (_CHECKPOINT, _LEDGER)
        return bool(self._leads(lambda: any(self._path(name).exists() for name in names)))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out of the folder, and remove what killed ones have left half-written.

        Raises:
            CheckpointError: another run is using the folder.
        """
        with contextlib.ExitStack() as stack:
            self._leads(lambda: self._hold(stack))
            yield

    def _hold(self, stack: contextlib.ExitStack) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(ImportError):  # a system without such locks
            import fcntl

            file = stack.enter_context(self._path(_LOCK).open("a"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CheckpointError(
                    f"{self.folder} is in use by a run that has not ended; give another folder"
                ) from None
            except OSError:
                pass  # a file system without such locks
        for name in (_LEDGER, _CHECKPOINT):
            for stale in self.folder.glob(f".{name}.*"):
                stale.unlink(missing_ok=True)

    def reserve(self, steps: int) -> None:
        """Write down that `steps` further steps may happen from now on."""
        ahead = Accountant.from_state_dict(self.private.accountant.state_dict())
        if draws := self.private.optimizer.draws_ahead(steps):
            ahead.step(self.private.plan.step, draws)
        content = {"format": _FORMAT, "plan": self._plan, "ledger": ahead.state_dict()}
        write_atomically(self._path(_LEDGER), json.dumps(content))

    def save(self, progress: Progress, *, finished: bool = False) -> None:
        """Write down where the run stands."""
        private, content = self.private, io.BytesIO()
        state = {
            "format": _FORMAT,
            "finished": finished,
            "plan": self._plan,
            "ledger": private.accountant.state_dict(),
            "steps": private.optimizer.steps,
            "model": private.model.state_dict(),
            "optimizer": private.optimizer.state_dict(),
            "kept": {name: each.state_dict() for name, each in self.kept.items()},
            "rows": [asdict(row) for row in progress.rows],
            "best": progress.best,
            "seconds": progress.seconds,
            "epoch_end": progress.epoch_end,
        }
        state = whole_state(state) if private.is_sharded else state
        if private.group.is_leader:
            torch.save(state, content)
            write_atomically(self._path(_CHECKPOINT), content.getvalue())

    def restore(self) -> Progress:
        """Put a run back to where `save` found it, charged for all that the ledger on disk holds.

        Raises:
            CheckpointError: a file is missing or damaged, they are of another plan or model, or the run was
                finished; or this run has taken steps already. Nothing is changed then.
        """
        private = self.private
        if private.accountant.state_dict() != private.plan.ledger().state_dict():
            raise CheckpointError(
                "resume must begin with what make_private has just returned, got a ledger that holds steps"
            )
        ledger, content = self._leads(self._read)
        path = self._path(_CHECKPOINT)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the file's format, beside the refusal
                state = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
        except Exception:  # PyTorch would advise to load it with whatever code it holds
            raise CheckpointError(
                f"{path} cannot be read: it is damaged, or holds something else than tensors and plain data"
            ) from None
        _check_kind(state, self._plan, path)
        if state.get("finished") is not False:
            raise CheckpointError(f"{path} is of a finished run; make a new plan to go on from its model")
        try:
            steps, epoch_end = (
                arguments.whole(name, state[name], least=0, most=private.plan.steps)
                for name in ("steps", "epoch_end")
            )
            progress = Progress(_rows(state["rows"]), state["best"], float(state["seconds"]), epoch_end)
            charged = self._charged([ledger["ledger"], state["ledger"]], steps)
            if private.is_sharded:
                state = self._shared_out(state)
                progress = replace(progress, best=state["best"])
            self._load(state)
        except Exception as error:
            raise CheckpointError(f"{path} does not fit this run: {_first_line(error)}") from None
        private.accountant.load_state_dict(charged)
        private.optimizer.steps = steps
        private.randomness.renew(private.group)
        return progress

    def _read(self) -> tuple[dict[str, Any], bytes]:
        """The ledger, checked, and the checkpoint as it is."""
        missing = [name for name in (_LEDGER, _CHECKPOINT) if not self._path(name).is_file()]
        if missing:
            raise CheckpointError(
                f"{self.folder} holds a run without its {missing[0]}, so that it cannot go on; start afresh "
                "in another folder, and count what both runs cost"
            )
        path = self._path(_LEDGER)
        try:
            ledger = json.loads(path.read_text(encoding="utf-8"))
            Accountant.from_state_dict(ledger["ledger"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} is damaged and cannot be read: {_first_line(error)}") from None
        _check_kind(ledger, self._plan, path)
        return ledger, self._path(_CHECKPOINT).read_bytes()

    def _charged(self, ledgers: list[dict[str, Any]], steps: int) -> dict[str, Any]:
        """A ledger that holds no less of any mechanism than one of those given, and the model's steps."""
        plan, least = self.private.plan, self.private.plan.ledger()
        if steps:
            least.step(plan.step, plan.draws(steps))
        counts: dict[Any, int] = {}
        for each in [*ledgers, least.state_dict()]:
            mechanism = Accountant.from_state_dict(each).mechanism
            for step, count in mechanism.parts if mechanism is not None else ():
                counts[step] = max(count, counts.get(step, 0))
        total = Accountant.from_state_dict({**least.state_dict(), "steps": []})
        for step, count in counts.items():
            total.step(step, count)
        return total.state_dict()

    def _shared_out(self, state: dict[str, Any]) -> dict[str, Any]:
        """The same state with this process's rows of what is sharded."""
        model, optimizer = self.private.model.state_dict(), self.private.optimizer
        _check_shapes(model, state["model"])
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        return {
            **state,
            "model": own_state(state["model"], model),
            "optimizer": own_optimizer_state(state["optimizer"], parameters),
            "best": None if state["best"] is None else own_state(state["best"], model),
        }

    def _load(self, state: dict[str, Any]) -> None:
        """Load model, optimizer and what is kept; if any of it does not fit, put all of them back."""
        parts: dict[str, Stateful] = {"model": self.private.model, "optimizer": self.private.optimizer}
        loads = {name: (part, state[name]) for name, part in parts.items()}
        _check_shapes(self.private.model.state_dict(), state["model"])
        if state["best"] is not None:
            _check_shapes(state["model"], state["best"])
        if set(self.kept) != set(state["kept"]):
            raise ValueError(f"it keeps {sorted(state['kept'])}, got {sorted(self.kept)}")
        loads |= {f"kept {name}": (part, state["kept"][name]) for name, part in self.kept.items()}
        before = {name: _copied(part.state_dict()) for name, (part, _) in loads.items()}
        try:
            for part, saved in loads.values():
                part.load_state_dict(saved)
        except Exception:
            for name, (part, _) in loads.items():
                part.load_state_dict(before[name])
            raise

    @property
    def _plan(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(self.private.plan.to_dict()))
        return plain

    def _leads(self, make: Callable[[], Any]) -> Any:
        return self.private.group.from_leader(make)

    def _path(self, name: str) -> Path:
        return self.folder / name


class Keeper:
    """Keeps the files of a run ahead of its steps; `before_step` is called before each of them.

    Steps are reserved in blocks, each for about a tenth of `save_every` seconds, and the run is saved when
    `save_every` seconds have passed: an interruption costs the steps of at most about that time.

    Args:
        files: of the run.
        save_every: seconds.
        progress: asked when the run is saved.
    """

    def __init__(self, files: Checkpoint, save_every: float, progress: Callable[[], Progress]) -> None:
        self._files, self._save_every, self._progress = files, save_every, progress
        self._saved = self._reserved_at = time.perf_counter()
        self._block = self._left = 0

    def begin(self) -> None:
        """Write down that the run has begun, before it is saved for the first time."""
        self._files.reserve(0)

    @property
    def is_due(self) -> bool:
        """Whether the run was saved so long ago that it should be again."""
        return time.perf_counter() - self._saved >= self._save_every

    def before_step(self) -> None:
        """Make sure that the ledger on disk holds the step that comes now."""
        if not self._left:
            if self.is_due and not self._files.private.is_sharded:  # that one is saved between steps
                self.save()
            self._reserve(time.perf_counter())
        self._left -= 1

    def save(self) -> None:
        """Write down where the run stands."""
        self._files.save(self._progress())
        self._saved = time.perf_counter()

    def stop(self) -> None:
        """The run is interrupted and this process goes on: save it, and give back what was not released.

        A sharded run is not saved: that takes all processes, and one of them may have ended.
        """
        if self._files.private.optimizer.is_between_steps and not self._files.private.is_sharded:
            self.save()
        self._files.reserve(0)

    def finish(self) -> None:
        """Write down that the run has ended, and the ledger as it ended."""
        self._files.save(self._progress(), finished=True)
        if self._files.private.group.is_leader:
            self._files.reserve(0)

    def _reserve(self, now: float) -> None:
        private = self._files.private
        wanted = self._save_every / _BLOCKS_PER_SAVE
        steps_in_time = self._block * wanted / max(now - self._reserved_at, 1e-9)
        steps = int(max(1.0, min(steps_in_time, _FASTER * self._block)))
        steps = max(1, min(steps, self._progress().epoch_end - private.optimizer.steps))
        while steps > 1 and not self._fits(steps):
            steps //= 2
        self._files.reserve(steps)
        self._block = self._left = steps
        self._reserved_at = time.perf_counter()

    def _fits(self, steps: int) -> bool:
        private = self._files.private
        draws = private.optimizer.draws_ahead(steps)
        if private.plan.max_epsilon is None or not draws:
            return True
        return private.accountant.can_afford(private.plan.step, draws)


def _copied(state: Any) -> Any:
    return tree_map(lambda each: each.clone() if is_sharded(each) else copy.deepcopy(each), state)


_BEFORE = {"adjacency": "add-remove"}
"""What a plan meant that was written before it said so."""


def _check_kind(state: Any, plan: dict[str, Any], path: Path) -> None:
    """Refuse what is no file of this format or of another plan."""
    saved = state.get("plan") if isinstance(state, dict) else None
    if not isinstance(saved, dict) or state.get("format") != _FORMAT:
        raise CheckpointError(f"{path} is not of format {_FORMAT}, which this version of ggdp writes")
    saved = {**_BEFORE, **saved}
    for name, value in plan.items():
        if saved.get(name) != value:
            raise CheckpointError(
                f"{path} is of a run with {name} = {saved.get(name)!r}, got {value!r}; resume with the plan "
                "it was started with, or start afresh in another folder"
            )


def _check_shapes(present: dict[str, Any], saved: dict[str, Any]) -> None:
    for name in sorted({*present, *saved}):
        shapes = [_shape(state.get(name)) for state in (saved, present)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"its model has {name!r} of shape {shapes[0]}, got {shapes[1]}")


def _shape(value: Any) -> Any:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__


def _rows(saved: list[dict[str, Any]]) -> tuple[EpochRow, ...]:
    kinds: dict[str, Any] = {each.name: float for each in fields(EpochRow)} | {"epoch": int, "steps": int}
    return tuple(EpochRow(**{name: kind(row[name]) for name, kind in kinds.items()}) for row in saved)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    if isinstance(error, KeyError):  # whose text is the key alone
        text = f"it has no {text}"
    return text.splitlines()[0][:200]
