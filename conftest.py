# SPDX-License-Identifier: Apache-2.0
"""Files whose optional dependency is missing are reported as skipped, by its name. A whole run that finds too
few tests fails.
"""

import gc
import importlib.util
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

_FEWEST = 6500  # tests and doctests of a whole run, where everything that `dev` brings is installed
_NOT_IN_DEV = {"jax", "playwright", "ray", "triton"}

_NEEDS = {
    "src/ggdp/torch": "torch",
    "src/ggdp/training": "torch",
    "src/ggdp/opacus.py": "opacus",
    "src/ggdp/training/opacus": "opacus",
    "src/ggdp/distributions/pytorch": "torch",
    "tests/training": "torch",
    "src/ggdp_paper/tasks": "torch",
    "src/ggdp_paper/task_run.py": "torch",
    "tests/paper": "joblib",
    "tests/paper/test_dask.py": "distributed",
    "tests/paper/test_ray.py": "ray",
    "tests/paper/test_training_figures.py": "torch",
    "tests/paper/test_cifar_table.py": "torch",
    "tests/paper/test_table_privacy.py": "dp_accounting",
    "tests/paper/test_task_run.py": "torch",
    "tests/paper/tasks": "torch",
    "tests/paper/cli/test_audit.py": "torch",
    "tests/paper/cli/test_train.py": "torch",
    "tests/training/opacus": "opacus",
    "tests/training/whole_models/test_transformers.py": "transformers",
    "tests/training/whole_models/test_vision.py": "timm",
    "tests/training/whole_models/test_adapters.py": "peft",
    "src/ggdp/distributions/pytorch/kernels.py": "triton",
    "src/ggdp/training/clipping/kernels.py": "triton",
    "src/ggdp/jax": "jax",
    "src/ggdp/reporting/explorer/app.py": "marimo",
    "tests/browser": "playwright",
    "tests/ggdp_jax": "jax",
    "tests/distributions/pytorch": "torch",
    "tests/gpu": "triton",
    "src/ggdp/accounting/formats/dp_events.py": "dp_accounting",
    "src/ggdp/dp_accounting.py": "dp_accounting",
    "tests/accounting/test_dp_events.py": "dp_accounting",
    "tests/test_dp_accounting.py": "dp_accounting",
    "tests/test_prv_beside_the_original.py": "prv_accountant",
    "tests/selection/test_pate.py": "sklearn",
    "tests/test_site.py": "furo",
}

# A session imports PyTorch, transformers and SciPy: a million objects that live to its end. Looking through
# all of them for garbage, again and again, took half of the time of collection.
gc.set_threshold(50_000, 20, 100)

_ROOT = Path(__file__).parent
_MISSING = {path: name for path, name in _NEEDS.items() if importlib.util.find_spec(name) is None}


def _lacking(path: Path) -> str | None:
    """The package that a file needs and that is not installed."""
    if not path.is_relative_to(_ROOT):
        return None
    inside = path.relative_to(_ROOT)
    return next((name for place, name in _MISSING.items() if inside.is_relative_to(place)), None)


class _Skipped(pytest.Item):
    """Stands in the report for all tests of a file."""

    lacks = ""

    def runtest(self) -> None:
        pytest.skip(f"{self.lacks} is not installed")


class _TooFew(pytest.Item):
    def runtest(self) -> None:
        pytest.fail(f"fewer than {_FEWEST} tests were found: some file is not collected", pytrace=False)


class _SkippedFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        name = _lacking(self.path) or ""
        item = _Skipped.from_parent(self, name=f"needs {name}")
        item.lacks = name
        yield item


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Of a file that cannot be imported, collect one skipped item in place of its tests and doctests."""
    found = yield
    if not found or not _lacking(file_path):
        return found
    is_test = file_path.name.startswith("test_")
    return [_SkippedFile.from_parent(parent, path=file_path)] if is_test else []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let a whole run fail that found fewer tests than there are."""
    whole = list(config.args) == list(config.getini("testpaths")) and not config.getoption("keyword")
    if whole and set(_MISSING.values()) <= _NOT_IN_DEV and len(items) < _FEWEST:
        items.append(_TooFew.from_parent(items[0].session, name="enough tests are found"))


def pytest_collection_finish() -> None:
    """Leave what collection has imported out of all further searches for garbage."""
    gc.freeze()
