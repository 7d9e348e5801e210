# SPDX-License-Identifier: Apache-2.0
"""A service that answers questions about private data until its budget is spent, and survives a restart.

Run it with: python examples/service_ledger.py
"""

import json
import tempfile
from pathlib import Path

from ggdp import Accountant, AdditiveNoise, BudgetExceededError, Gaussian, Laplace, release

VISITS = {"monday": 412, "tuesday": 138, "wednesday": 967}  # the private data; one person is in one count
COARSE = AdditiveNoise(Laplace(scale=10.0))  # cheap questions, with much noise
FINE = AdditiveNoise(Gaussian(std=4.0))  # dear questions, with little


class Service:
    """Answers questions, and writes each into the ledger before its answer leaves."""

    def __init__(self, file: Path) -> None:
        self._file = file
        if file.exists():
            self.ledger = Accountant.from_state_dict(json.loads(file.read_text()))
        else:
            self.ledger = Accountant(epsilon=2.0, delta=1e-6)

    def answer(self, day: str, mechanism: AdditiveNoise) -> float:
        """The number of visits with noise; raises BudgetExceededError where the budget does not allow it."""
        self.ledger.spend(mechanism)  # first: nothing is recorded, and nothing may leave, if this raises
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self.ledger.state_dict()))
        fresh.replace(self._file)  # written whole or not at all
        return release(mechanism, VISITS[day])


with tempfile.TemporaryDirectory() as folder:
    service = Service(Path(folder) / "ledger.json")
    print("monday, coarse:", service.answer("monday", COARSE))
    print("monday, fine:  ", service.answer("monday", FINE))

    service = Service(Path(folder) / "ledger.json")  # the service was restarted
    print("spent so far:   epsilon <=", round(service.ledger.epsilon(delta=1e-6).upper, 3))
    print("fine questions left:", service.ledger.remaining(FINE))
    try:
        while True:
            service.answer("tuesday", FINE)
    except BudgetExceededError as refused:
        print("refused:", refused)
    assert service.ledger.epsilon(delta=1e-6).upper <= 2.0
