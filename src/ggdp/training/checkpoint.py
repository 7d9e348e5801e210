# SPDX-License-Identifier: Apache-2.0
"""What a run leaves on disk so that it can be stopped at any moment and go on as if it never had been.

    ledger.json      what the run may have spent by now: written *before* an epoch, with all of its steps
    checkpoint.pt    everything else: written after an epoch

Both are replaced whole. The checkpoint holds the state of the generators, so that the steps of an interrupted
epoch are repeated with the same batches and the same noise: the same releases, which cost nothing more. It
also means that whoever reads it can predict the noise: the file is its owner's alone, and as secret as the
data. `finish` takes the generators out of it.
"""

import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from ggdp.accounting import Accountant
from ggdp.atomic_file import write_atomically
from ggdp.training.private import Private
from ggdp.training.report import EpochRow

_LEDGER, _CHECKPOINT = "ledger.json", "checkpoint.pt"
_PARTS = ("ledger", "model", "optimizer", "num_steps", "scheduler", "randomness", "torch_rng", "rows", "best")
_FORMAT = 1


class CheckpointError(ValueError):
    """A checkpoint that cannot be used here; nothing was changed."""


@dataclass(frozen=True)
class Checkpoint:
    """The files of one run, in one folder; of several processes each has its own files."""

    folder: Path
    rank: int = 0

    @property
    def exists(self) -> bool:
        """Whether a run has left anything here."""
        return self._path(_CHECKPOINT).exists() or self._path(_LEDGER).exists()

    def reserve(self, private: Private, steps: int) -> None:
        """Write down that `steps` further steps may happen from now on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ahead = Accountant.from_state_dict(private.accountant.state_dict())
        ahead.step(private.plan.step, steps)
        text = json.dumps({"format": _FORMAT, "plan": private.plan.to_dict(), "ledger": ahead.state_dict()})
        write_atomically(self._path(_LEDGER), text)

    def save(
        self,
        private: Private,
        rows: tuple[EpochRow, ...],
        best: dict[str, Any] | None,
        scheduler: LRScheduler | None,
    ) -> None:
        """Write down where the run stands."""
        self._write(
            {
                "format": _FORMAT,
                "plan": private.plan.to_dict(),
                "ledger": private.accountant.state_dict(),
                "model": private.model.state_dict(),
                "optimizer": private.optimizer.state_dict(),
                "num_steps": private.optimizer.num_steps,
                "scheduler": None if scheduler is None else scheduler.state_dict(),
                "randomness": private.randomness.state_dict(),
                "torch_rng": torch.get_rng_state(),  # dropout and the like
                "rows": [asdict(row) for row in rows],
                "best": best,
            }
        )

    def restore(
        self, private: Private, scheduler: LRScheduler | None
    ) -> tuple[tuple[EpochRow, ...], dict[str, Any] | None]:
        """Put a run back to where `save` found it.

        Raises:
            CheckpointError: the files are of another plan, were finished, or do not agree with each other.
        """
        path = self._path(_CHECKPOINT)
        if not path.exists():
            raise CheckpointError(
                f"{self.folder} holds a ledger and no {path.name}, so that its releases cannot be repeated; "
                "start afresh in another folder, and count both ledgers"
            )
        state = _loaded(path)
        _check_plan(state, private, path)
        for part in _PARTS:
            if part not in state:
                raise _damaged(path, f"it has no {part}")
        if state["randomness"] is None:
            raise CheckpointError(f"{path} is of a finished run; make a new plan to go on from its model")
        try:
            private.accountant.load_state_dict(state["ledger"])
            private.model.load_state_dict(state["model"])
            private.optimizer.load_state_dict(state["optimizer"])
            private.optimizer.num_steps = state["num_steps"]
            if scheduler is not None:
                scheduler.load_state_dict(state["scheduler"])
            private.randomness.load_state_dict(state["randomness"])
            torch.set_rng_state(state["torch_rng"])
            return tuple(EpochRow(**row) for row in state["rows"]), state["best"]
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise _damaged(path, str(error)) from None

    def finish(self, private: Private) -> None:
        """Take the generators out of the checkpoint and write the ledger as it ended."""
        path = self._path(_CHECKPOINT)
        if path.exists():
            self._write({**_loaded(path), "randomness": None})
        text = {"format": _FORMAT, "plan": private.plan.to_dict(), "ledger": private.accountant.state_dict()}
        write_atomically(self._path(_LEDGER), json.dumps(text))

    def _write(self, state: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        content = io.BytesIO()
        torch.save(state, content)
        write_atomically(self._path(_CHECKPOINT), content.getvalue(), secret=True)

    def _path(self, name: str) -> Path:
        return self.folder / (name if self.rank == 0 else f"{self.rank}-{name}")


def _loaded(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:  # a damaged file fails in zip, in pickle or in torch
        raise _damaged(path, str(error) or type(error).__name__) from None
    return state if isinstance(state, dict) else {}


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged ({why.splitlines()[0]}), so that its releases cannot be repeated; start afresh "
        "in another folder, and count both ledgers"
    )


def _check_plan(state: dict[str, Any], private: Private, path: Path) -> None:
    present = json.loads(json.dumps(private.plan.to_dict()))
    saved = json.loads(json.dumps(state.get("plan")))
    if state.get("format") != _FORMAT or not isinstance(saved, dict):
        raise CheckpointError(f"{path} is not a checkpoint of format {_FORMAT}")
    for name, value in present.items():
        if saved.get(name) != value:
            raise CheckpointError(
                f"{path} is of a run with {name} = {saved.get(name)!r}, got {value!r}; resume with the plan "
                "it was started with, or start afresh in another folder"
            )
