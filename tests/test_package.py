# SPDX-License-Identifier: Apache-2.0
"""What holds for the package as a whole: its imports, its names, its version."""

import importlib
import importlib.util
import inspect
import os
import pkgutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ggdp
import ggdp_paper

ROOT = Path(__file__).parents[1]
HEAVY = (
    "torch",
    "matplotlib",
    "opacus",
    "pandas",
    "polars",
    "scipy.stats",
    "scipy.optimize",
    "typer",
    "rich",
)
NEEDS = {
    "ggdp.distributions.pytorch.kernels": "triton",
    "ggdp.training.clipping.kernels": "triton",
    "ggdp.distributions.pytorch": "torch",
    "ggdp.torch": "torch",
    "ggdp.training": "torch",
    "ggdp_paper.task_run": "torch",
    "ggdp_paper.tasks": "torch",
    "ggdp.training.opacus": "opacus",
    "ggdp.opacus": "opacus",
    "ggdp.jax": "jax",
    "ggdp.dp_accounting": "dp_accounting",
    "ggdp.reporting.explorer.app": "marimo",
}
ABSENT = tuple(room for room, library in NEEDS.items() if importlib.util.find_spec(library) is None)
MODULES = sorted(
    module.name
    for package in (ggdp, ggdp_paper)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not module.name.startswith(("ggdp.__main__", *ABSENT))
)


def in_a_fresh_process(code):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_importing_the_package_imports_nothing_heavy():
    code = f"import sys, ggdp; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert in_a_fresh_process(code) == "[]"


def test_importing_the_package_takes_less_than_half_a_second():
    # Processor time, so that a busy machine does not fail a light import.
    code = "import time; start = time.process_time(); import ggdp; print(time.process_time() - start)"
    assert min(float(in_a_fresh_process(code)) for _ in range(3)) < 0.5


def test_accounting_runs_where_a_browser_runs_it_without_cryptography_threads_or_the_command_line():
    code = """
import _thread, sys

class Absent:
    names = {"cryptography", "torch", "multiprocessing", "typer", "rich", "matplotlib", "fcntl", "ssl"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"no {name} here", name=name)

def refuse(*_, **__):
    raise RuntimeError("can't start new thread")

sys.meta_path.insert(0, Absent())
_thread.start_new_thread = refuse
import threading
threading._start_new_thread = threading._start_joinable_thread = refuse
import ggdp
noise = ggdp.GeneralizedGaussian.from_noise_multiplier(1.5, 2.0)
step = ggdp.PoissonSampled(ggdp.AdditiveNoise(noise), rate=0.01)
run = ggdp.Composed(step, times=1000)
profile = ggdp.account(run)
upper = profile.epsilon(delta=1e-6).upper
found = ggdp.calibrate_scale(beta=1.5, epsilon=upper, delta=1e-6, rate=0.01, steps=1000)
missed = ggdp.trade_off(run, false_positive_rate=0.01)
from ggdp.reporting.explorer import answer, question
shown = answer.answer_of(question.question_of(question.Settings()))
print(upper, found.achieved.upper <= upper, 0.9 < missed.lower < 0.99, shown.epsilon.upper <= 1.0)
"""
    upper, *claims = in_a_fresh_process(code).split()
    step = ggdp.PoissonSampled(
        ggdp.AdditiveNoise(ggdp.GeneralizedGaussian.from_noise_multiplier(1.5, 2.0)), rate=0.01
    )
    assert float(upper) == ggdp.epsilon(ggdp.Composed(step, times=1000), delta=1e-6).upper
    assert claims == ["True"] * 3


def test_every_public_name_loads_and_an_unknown_one_is_an_attribute_error():
    names = {name: getattr(ggdp, name) for name in ggdp.__all__}
    assert all(value is not None for value in names.values())
    assert sorted(dir(ggdp)) == sorted(ggdp.__all__)
    with pytest.raises(AttributeError, match="no attribute 'epsilom'"):
        ggdp.epsilom  # noqa: B018


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_holds_and_every_public_name_exists(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public), f"{name}.{public}"


def test_every_public_name_is_documented():
    for name in ggdp.__all__:
        thing = getattr(ggdp, name)
        assert inspect.getdoc(thing), name
        # A dataclass without a docstring is given its signature; that is no documentation.
        assert not inspect.getdoc(thing).startswith(f"{name}("), name


def test_public_names_are_sorted_and_unique():
    assert sorted(set(ggdp.__all__)) == sorted(ggdp.__all__)


def test_every_source_file_starts_with_its_licence_and_fits_on_a_few_screens():
    for path in sorted((ROOT / "src").rglob("*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0] == "# SPDX-License-Identifier: Apache-2.0", path
        assert len(lines) <= 500, path


def test_the_version_is_written_in_one_place():
    written = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert ggdp.__version__ == written
    mentions = [path for path in (ROOT / "src").rglob("*.py") if written in path.read_text(encoding="utf-8")]
    assert mentions == []
