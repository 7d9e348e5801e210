# SPDX-License-Identifier: Apache-2.0
"""From a configuration to a record, its pictures and the page: whole, repeatable, honest about gaps."""

import json
import re

import pytest

from ggdp_paper.experiment import Agreement, Config, Experiment, Finding, Statement
from ggdp_paper.figures import NAMES, chosen, experiment_named
from ggdp_paper.index_page import index_page
from ggdp_paper.record import read_record
from ggdp_paper.reproduce import Place, Skipped, reproduce
from ggdp_paper.sweep import Cell
from ggdp_paper.workers import Workers

ALONE = Workers("sequential")
NASTY = "<script>alert('x')</script>&"


def picture(settings, numbers):
    from ggdp.reporting import canvas

    figure, (axes,) = canvas.panels(1)
    axes.plot(numbers["drawn"])
    return {"small": figure}


class Small(Experiment):
    """An experiment whose configuration is here."""

    @property
    def config(self):
        statements = {"it": Statement(f"So it is {NASTY}", because=f"of this {NASTY}")}
        return Config(f"Small {NASTY}", statements, {"count": 4, "holds": True}, {"count": 2, "holds": False})


def small(files=(), needs_gpu=False, key="it", **others):
    return Small(
        name="small",
        cells=lambda settings: [
            Cell("sweep_tasks:draw", {"x": x, "data": settings.get("data")}, needs_gpu=needs_gpu)
            for x in range(settings["count"])
        ],
        numbers=lambda settings, results: {"drawn": [result["number"] for result in results]},
        headline=lambda numbers: {"first": numbers["drawn"][0]},
        findings=lambda settings, numbers: {key: Finding(f"found {NASTY}", Agreement.of(settings["holds"]))},
        pictures=picture,
        files=lambda settings: files,
        **others,
    )


def test_a_record_holds_settings_seeds_versions_time_numbers_and_findings(tmp_path):
    record = reproduce(small(), Place(tmp_path), workers=ALONE)
    assert record == json.loads((tmp_path / "small.json").read_text())
    assert record["config"] == {"count": 4, "holds": True}
    assert list(record["seeds"]) == ["x = 0", "x = 1", "x = 2", "x = 3"]
    words = [int(word, 16) for word in record["seeds"]["x = 2"].split()]
    assert tuple(words) == small().cells(record["config"])[2].entropy
    assert {"ggdp", "numpy", "python"} <= set(record["versions"])
    assert record["seconds"]["cells"] == len(record["numbers"]["drawn"]) == 4
    assert record["headline"] == {"first": record["numbers"]["drawn"][0]}
    assert record["findings"][0]["agreement"] == "agrees"
    assert (tmp_path / "small.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "small.svg").read_bytes()


def test_the_reason_for_a_difference_is_told_only_where_there_is_one(tmp_path):
    assert "because" not in reproduce(small(), Place(tmp_path / "full"), workers=ALONE)["findings"][0]
    quick = reproduce(small(), Place(tmp_path / "quick"), workers=ALONE, quick=True)
    assert quick["findings"][0]["agreement"] == "differs"
    assert quick["findings"][0]["because"] == f"of this {NASTY}"
    assert quick["quick"] is True


def test_a_second_run_reads_the_cells_and_draws_the_same_picture(tmp_path):
    first = reproduce(small(), Place(tmp_path), workers=ALONE)
    drawn = (tmp_path / "small.svg").read_bytes()
    again = reproduce(small(), Place(tmp_path), workers=ALONE)
    assert again["seconds"]["cells read from earlier runs"] == 4
    assert again["numbers"] == first["numbers"]
    assert (tmp_path / "small.svg").read_bytes() == drawn


def test_without_data_a_figure_is_skipped_and_says_what_to_pass(tmp_path):
    with_data = small(files=("pate/votes.npz",))
    without = reproduce(with_data, Place(tmp_path), workers=ALONE)
    assert without == Skipped("small", "needs data: pass --data DIR, a folder with pate/votes.npz")
    wrong = reproduce(with_data, Place(tmp_path, tmp_path), workers=ALONE)
    assert wrong == Skipped("small", "needs pate/votes.npz in the folder of --data")
    assert not (tmp_path / "small.json").exists()


def test_other_data_start_other_cells(tmp_path):
    with_data = small(files=("votes",))
    (tmp_path / "votes").write_text("one")
    first = reproduce(with_data, Place(tmp_path, tmp_path), workers=ALONE)
    (tmp_path / "votes").write_text("two")
    second = reproduce(with_data, Place(tmp_path, tmp_path), workers=ALONE)
    assert second["seconds"]["cells read from earlier runs"] == 0
    assert first["config"]["data"] != second["config"]["data"]


def test_a_figure_that_needs_a_gpu_throughout_is_skipped_with_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: False)
    found = reproduce(small(needs_gpu=True), Place(tmp_path), workers=ALONE)
    assert found == Skipped("small", "4 of its 4 cells need a CUDA device, and no worker has one")


def test_a_figure_without_a_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = reproduce(small(packages=("torch", "sklearn")), Place(tmp_path), workers=ALONE)
    assert found == Skipped(
        "small", 'needs torch and sklearn, not installed here; try pip install "ggdp[reproduce]"'
    )


def test_a_full_run_is_not_replaced_by_a_quick_one(tmp_path):
    full = reproduce(small(), Place(tmp_path), workers=ALONE)
    drawn = (tmp_path / "small.svg").read_bytes()
    quick = reproduce(small(), Place(tmp_path), workers=ALONE, quick=True)
    path = str(tmp_path / "small.json")
    assert quick == Skipped(
        "small", f"a quick run would replace the full one of {path!r}; give another --out"
    )
    assert json.loads((tmp_path / "small.json").read_text()) == full
    assert (tmp_path / "small.svg").read_bytes() == drawn


def test_a_full_run_replaces_a_quick_one_and_a_file_of_someone_else(tmp_path):
    (tmp_path / "small.json").write_text("{")
    assert reproduce(small(), Place(tmp_path), workers=ALONE, quick=True)["quick"] is True
    assert reproduce(small(), Place(tmp_path), workers=ALONE)["quick"] is False


def test_a_run_asked_to_be_quick_that_is_no_smaller_is_not_called_quick(tmp_path, monkeypatch):
    same = Config("Small", {"it": Statement("So it is")}, {"count": 2, "holds": True}, {})
    monkeypatch.setattr(Small, "config", same)
    full = reproduce(small(), Place(tmp_path), workers=ALONE)
    quick = reproduce(small(), Place(tmp_path), workers=ALONE, quick=True)
    assert quick["quick"] is False
    assert quick["numbers"] == full["numbers"]


def test_the_gpu_is_named_where_cells_need_one_and_no_other_figure_asks_for_torch(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr("ggdp_paper.workers._cuda_is_here", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a device")
    on_gpu = reproduce(small(needs_gpu=True), Place(tmp_path / "gpu"), workers=ALONE)
    assert on_gpu["versions"]["GPU"] == "a device"
    assert "GPU" not in reproduce(small(), Place(tmp_path / "plain"), workers=ALONE)["versions"]


def test_a_finding_without_a_statement_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="statements without finding or the reverse"):
        reproduce(small(key="that"), Place(tmp_path), workers=ALONE)


def test_the_page_escapes_everything_and_shows_verdict_picture_and_what_was_left_out(tmp_path):
    record = reproduce(small(), Place(tmp_path / "full"), workers=ALONE)
    quick = reproduce(small(), Place(tmp_path / "quick"), workers=ALONE, quick=True)
    page = index_page([record, quick], {f"fig9{NASTY}": f"needs {NASTY}"}, f"0{NASTY}")
    assert "<script>" not in page
    assert page.count("agrees with the paper") == 1
    assert page.count("differs from the paper") == 1
    assert "of this &lt;script&gt;" in page
    assert 'src="small.png"' in page
    assert "Left out" in page
    assert "A quick run" in page


def test_the_page_says_which_sections_are_of_an_earlier_run(tmp_path):
    record = reproduce(small(), Place(tmp_path), workers=ALONE)
    assert "earlier run" not in index_page([record], {}, "0")
    page = index_page([record], {}, "0", earlier={"small"})
    assert "(from an earlier run)" in page
    assert "From an earlier run; the last one did not make it." in page


def spoiled(tmp_path, change):
    """The message about a record after a change."""
    record = reproduce(small(), Place(tmp_path), workers=ALONE)
    path = tmp_path / "small.json"
    path.write_text(change(record) if change(record).__class__ is str else json.dumps(change(record)))
    with pytest.raises(ValueError, match="must be a record of `ggdp reproduce`") as refused:
        read_record(path)
    assert str(path) in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda record: "{", "it is not JSON"),
        (lambda record: "[" * 100_000, "it is not JSON"),
        (lambda record: [], "it is not one JSON object"),
        (lambda record: {}, "wrong or missing: figure, title, quick, "),
        (lambda record: record | {"seconds": {"cells": "many"}}, "wrong or missing: seconds"),
        (lambda record: record | {"numbers": {"notes": [1]}}, "wrong or missing: numbers"),
        (lambda record: record | {"findings": []}, "wrong or missing: findings"),
        (lambda record: record | {"findings": [{"says": "so"}]}, "wrong or missing: findings"),
        (lambda record: record | {"pictures": [None]}, "wrong or missing: pictures"),
        (lambda record: record | {"figure": "fig1"}, "it is of 'fig1'"),
    ],
)
def test_a_file_that_is_no_record_is_refused_by_name(tmp_path, change, told):
    assert told in spoiled(tmp_path, change)


def test_a_verdict_that_is_none_is_no_record(tmp_path):
    found = {"says": "so", "found": "that", "agreement": "perhaps"}
    assert "findings" in spoiled(tmp_path, lambda record: record | {"findings": [found]})


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_statements_and_settings(name):
    experiment = experiment_named(name)
    assert experiment.name == name
    assert experiment.config.title
    assert experiment.config.statements
    cells = experiment.cells({**experiment.config.chosen(False), "data": {}})
    assert cells
    quick = experiment.cells({**experiment.config.chosen(True), "data": {}})
    assert quick or any(cell.needs_gpu for cell in cells)


def test_figures_come_in_the_order_of_the_paper_each_once():
    assert [experiment.name for experiment in chosen(["fig2", "fig1", "fig2"])] == ["fig1", "fig2"]
    assert [experiment.name for experiment in chosen([])] == list(NAMES)
    assert [experiment.name for experiment in chosen(["fig1", "all"])] == list(NAMES)
    with pytest.raises(ValueError, match=re.escape("figure must be one of fig1")):
        chosen(["fig99"])
