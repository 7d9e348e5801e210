# SPDX-License-Identifier: Apache-2.0
"""Figures that train on a GPU: read from whole records where they cannot run, each with its own settings."""

import hashlib
import json
from pathlib import Path

import pytest

from ggdp_paper.experiment import Agreement, Config, Experiment, Finding, Statement
from ggdp_paper.figures import NAMES, experiment_named
from ggdp_paper.record import measured
from ggdp_paper.reproduce import Place, Skipped, folder_digest, reproduce
from ggdp_paper.sweep import Cell
from ggdp_paper.workers import Workers

RECORDS = Path(__file__).parents[2] / "papers" / "generalized_gaussian" / "records"
ALONE = Workers("sequential")
WANTED = [name for name in NAMES if experiment_named(name).needs_record]
READ = [name for name in WANTED if measured(experiment_named(name).config.settings["measured"]) is not None]


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: False)


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: True)


def kept(name):
    return measured(experiment_named(name).config.settings["measured"])


def test_figures_of_a_gpu_are_read():
    assert {"fig4_imdb", "fig4_imdb_multipliers", "fig4_cifar10_matched", "table1"} <= set(READ)


def test_a_figure_without_a_kept_record_is_skipped_with_what_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp_paper.reproduce.measured", lambda name: None)
    found = reproduce(experiment_named("fig4_cifar10"), Place(tmp_path), workers=ALONE)
    assert isinstance(found, Skipped)
    assert "a folder with cifar-10-batches-py or cifar-10-batches-bin; and no record" in found.why


@pytest.mark.parametrize("name", READ)
def test_a_kept_record_is_of_a_full_run_of_the_present_settings_and_the_only_copy(name):
    record = kept(name)
    assert not (RECORDS / f"{name}.json").exists()
    assert record["quick"] is False
    assert record["config"] == experiment_named(name).config.chosen(False)
    assert record["versions"]["GPU"]
    assert record["seconds"]["in cells"] > 0.0


@pytest.mark.parametrize(("name", "quick"), [*((name, False) for name in READ), (READ[0], True)])
def test_what_is_read_keeps_its_settings_versions_time_and_seeds_and_says_so(tmp_path, name, quick):
    found = reproduce(experiment_named(name), Place(tmp_path), workers=ALONE, quick=quick)
    assert found == json.loads((tmp_path / f"{name}.json").read_text())
    for key in ("config", "versions", "seconds", "seeds", "findings", "headline", "pictures"):
        assert found[key] == kept(name)[key]
    assert found["quick"] is False
    note, *others = found["numbers"]["notes"]
    assert others == kept(name)["numbers"]["notes"]
    assert "this command trained nothing, since" in note
    assert ("a quick run leaves its training out" in note) is quick
    assert all((tmp_path / f"{picture}.svg").is_file() for picture in found["pictures"])


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("table1", "cifar-10-batches-py or cifar-10-batches-bin"), ("fig4_imdb", "aclImdb")],
)
def test_the_note_says_what_to_pass(tmp_path, gpu, name, wanted):
    experiment = experiment_named(name)
    without = reproduce(experiment, Place(tmp_path), workers=ALONE)
    assert f"it needs a GPU and --data DIR, a folder with {wanted}." in without["numbers"]["notes"][0]
    empty = reproduce(experiment, Place(tmp_path, tmp_path), workers=ALONE)
    assert f"it needs {wanted} in the folder of --data, which has none." in empty["numbers"]["notes"][0]
    assert not (tmp_path / "cells").exists()


class Trained(Experiment):
    """A figure of two cells that ask for a GPU; a quick run has none."""

    @property
    def config(self):
        settings = {"measured": "table1_cifar10", "count": 2}
        return Config("Trained", {"it": Statement("So it is")}, settings, {"count": 0})


TRAINED = Trained(
    name="trained",
    cells=lambda settings: [
        Cell("sweep_tasks:draw", {"x": x}, needs_gpu=True) for x in range(settings["count"])
    ],
    numbers=lambda settings, results: {"rows": results, "notes": []},
    headline=lambda numbers: {},
    findings=lambda settings, numbers: {"it": Finding("found", Agreement.AGREES)},
    pictures=lambda settings, numbers: {},
    folders=("first", "second"),
    needs_record=True,
)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data" / "second").mkdir(parents=True)
    (tmp_path / "data" / "second" / "images").write_text("one")
    return tmp_path / "data"


def test_other_data_have_other_cells_with_the_same_seeds(tmp_path, data, gpu):
    place = Place(tmp_path / "out", data)
    first = reproduce(TRAINED, place, workers=ALONE)
    again = reproduce(TRAINED, place, workers=ALONE)
    assert again["seconds"]["cells read from earlier runs"] == 2
    (data / "second" / "images").write_text("two")
    other = reproduce(TRAINED, place, workers=ALONE)
    assert other["seconds"]["cells read from earlier runs"] == 0
    assert other["seeds"] == first["seeds"]
    assert other["config"] == first["config"] == TRAINED.config.chosen(False)
    assert first["data"] != other["data"] == {"second": folder_digest(data / "second")}
    names = {path.name for path in (tmp_path / "out" / "cells" / "trained").iterdir()}
    assert names == {record["data"]["second"][:12] for record in (first, other)}


def test_cells_of_these_data_from_elsewhere_make_the_figure_without_a_gpu(tmp_path, data, monkeypatch):
    place = Place(tmp_path / "out", data)
    with monkeypatch.context() as there:
        there.setattr("ggdp_paper.workers._cuda_is_here", lambda: True)
        first = reproduce(TRAINED, place, workers=ALONE)
    again = reproduce(TRAINED, place, workers=ALONE)
    assert again["numbers"] == first["numbers"]
    some = next((tmp_path / "out" / "cells" / "trained").rglob("*.json"))
    some.unlink()
    (tmp_path / "out" / "trained.json").unlink()
    part = reproduce(TRAINED, place, workers=ALONE)
    assert "1 of its 2 cells need a CUDA device" in part["numbers"]["notes"][0]
    assert part["numbers"]["rows"] == measured("table1_cifar10")["numbers"]["rows"]


def test_a_run_of_ones_own_is_not_replaced_by_what_is_read(tmp_path, data, gpu):
    own = reproduce(TRAINED, Place(tmp_path, data), workers=ALONE)
    read = reproduce(TRAINED, Place(tmp_path), workers=ALONE)
    assert isinstance(read, Skipped)
    assert "the record kept with the package would replace the run of" in read.why
    assert "give another --out" in reproduce(TRAINED, Place(tmp_path), workers=ALONE, quick=True).why
    assert json.loads((tmp_path / "trained.json").read_text()) == own


def test_what_was_read_is_replaced_by_a_run_of_ones_own(tmp_path, data, gpu):
    assert "read from" in reproduce(TRAINED, Place(tmp_path), workers=ALONE, quick=True)
    assert "read from" in reproduce(TRAINED, Place(tmp_path), workers=ALONE)
    assert "read from" not in reproduce(TRAINED, Place(tmp_path, data), workers=ALONE)


def test_without_gpu_and_cells_the_data_are_not_read(tmp_path, data, monkeypatch):
    def no_digest(folder):
        raise AssertionError(f"{folder} was read")

    monkeypatch.setattr("ggdp_paper.reproduce.folder_digest", no_digest)
    found = reproduce(TRAINED, Place(tmp_path / "out", data), workers=ALONE)
    assert "its cells need a CUDA device, and no worker has one" in found["numbers"]["notes"][0]


def test_without_a_record_a_figure_is_skipped_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp_paper.reproduce.measured", lambda name: None)
    found = reproduce(TRAINED, Place(tmp_path), workers=ALONE)
    assert "no record table1_cifar10 of a GPU run is kept with this package" in found.why


def test_a_digest_of_a_folder_is_of_names_and_contents_wherever_it_lies(tmp_path):
    def made(name, files):
        for path, content in files.items():
            (tmp_path / name / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / path).write_text(content)
        return folder_digest(tmp_path / name)

    first = made("a", {"x": "1", "y/z": "2"})
    assert made("elsewhere/b", {"y/z": "2", "x": "1"}) == first
    others = [{"x": "2", "y/z": "1"}, {"x": "1", "z": "2"}, {"x": "1"}, {"x": "1", "y/z": "2", "w": ""}]
    digests = {made(f"other{place}", files) for place, files in enumerate(others)}
    assert len(digests | {first}) == 5
    listed = "".join(
        f"{hashlib.sha256(content.encode()).hexdigest()} {name}\0"
        for name, content in (("x", "1"), ("y/z", "2"))
    )
    assert first == hashlib.sha256(listed.encode()).hexdigest()
