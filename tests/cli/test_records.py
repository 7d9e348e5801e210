# SPDX-License-Identifier: Apache-2.0
"""Every record has one shape, which the schema describes and `ggdp report` reads."""

import copy
import json
import re
from pathlib import Path

import pytest
import typer

from ggdp import __version__, cli
from record_schema import SCHEMA, errors

RUN = ("--noise-multiplier", "2", "--rate", "0.01", "--steps", "100")
LINES = {
    "noise": ("--beta", "1.5", "--scale", "2"),
    "release": ("numbers.csv", "--column", "readers", "--keep", "branch", "--beta", "1.5", "--std", "3"),
    "epsilon": ("--beta", "1.5", "--beta", "2", *RUN, "--delta", "1e-6"),
    "delta": ("--beta", "2", *RUN, "--epsilon", "1", "--dimension", "10", "--norm", "inf"),
    "calibrate": ("--beta", "1", "--epsilon", "1", "--delta", "1e-5"),
    "curve": ("--beta", "2", *RUN, "--points", "3"),
    "risk": ("--beta", "1.5", "--beta", "2", *RUN),
    "choose": ("--epsilon", "2", "--delta", "0.1", "--steps", "1", "--steps", "3", "--points", "2"),
    "simulate-argmax": ("--epsilon", "1", "--delta", "1e-5", "--histograms", "5", "--points", "3"),
    "pate": ("votes.csv", "--beta", "2", "--epsilon", "8", "--delta", "1e-5"),
    "train": ("--task", "adult", "--synthetic", "--beta", "2", "--epsilon", "2", "--steps", "8"),
    "audit": ("--task", "adult", "--synthetic", "--beta", "2", "--epsilon", "2", "--steps", "8",
        "--canaries", "20"),
}  # fmt: skip
"""A line for each command that has --json."""


@pytest.fixture
def record(ggdp, tmp_path, monkeypatch):
    """The record that a command prints, or, of demo, writes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "numbers.csv").write_text("branch,readers\nAbbey,412\nBank,138\n")
    (tmp_path / "votes.csv").write_text("40,5,5\n20,20,10\n")

    def made(command):
        if command == "demo":
            assert ggdp("demo", "--out", "out").code == 0
            return json.loads((tmp_path / "out" / "report.json").read_text())
        done = ggdp(command, *LINES[command], "--json")
        assert (done.code, done.err) == (0, "")
        return json.loads(done.out)

    return made


def objects(value):
    """Every object inside a value."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from objects(inner)


def test_every_command_with_json_is_among_the_lines():
    group = typer.main.get_command(cli.app)
    commands = {name: group.get_command(None, name) for name in group.list_commands(None)}
    assert set(LINES) == {name for name, one in commands.items() if any(p.name == "json" for p in one.params)}


@pytest.mark.parametrize("command", [*LINES, "demo"])
def test_a_record_keeps_to_the_schema_and_becomes_a_page(ggdp, tmp_path, record, command, monkeypatch):
    found = record(command)
    assert errors(found) == []
    assert list(found)[:2] == ["kind", "version"]
    assert (found["kind"], found["version"]) == (command, __version__)
    assert isinstance(found["results"], list)
    for one in objects(found):
        assert set(one.get("epsilon", ("lower", "estimate", "upper"))) == {"lower", "estimate", "upper"}
    monkeypatch.setattr("ggdp.reporting.canvas.png", lambda figure: b"drawn elsewhere")
    (tmp_path / "run.json").write_text(json.dumps(found))
    done = ggdp("report", "run.json", "--html", "run.html")
    assert (done.code, done.err) == (0, "")
    page = (tmp_path / "run.html").read_text()
    assert page.count("<article>") == len(found["results"])
    assert '<meta name="viewport" content="width=device-width' in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)  # nothing is fetched


def test_the_schema_refuses_what_a_record_must_not_be(record):
    found = record("epsilon")
    for damage, told in (
        (lambda one: one.pop("version"), "record.version is missing"),
        (lambda one: one.update(kind="colour"), "record.kind is 'colour'"),
        (lambda one: one.update(results={}), "record.results is dict, not array"),
        (lambda one: one.update(results=[]), "record.results has 0 items"),
        (lambda one: one["results"][1].update(epsilon=1.0), "record.results[1].epsilon is float, not object"),
        (lambda one: one["results"][0]["epsilon"].pop("lower"), "record.results[0].epsilon.lower is missing"),
        (lambda one: one["results"][0].update(rate=2.0), "record.results[0].rate is 2.0"),
        (lambda one: one["results"][0].update(adjacency="near"), "record.results[0].adjacency is 'near'"),
    ):
        damaged = copy.deepcopy(found)
        damage(damaged)
        assert told in errors(damaged)


def test_the_schema_knows_the_kinds_that_a_report_knows():
    from ggdp.reporting.run_report import KNOWN

    assert {entry["properties"]["kind"]["const"] for entry in SCHEMA["anyOf"]} == set(KNOWN)


def test_the_page_of_records_names_every_kind():
    page = (Path(__file__).parents[2] / "docs" / "records.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    kinds = {entry["properties"]["kind"]["const"] for entry in SCHEMA["anyOf"]}
    assert {name for row in rows for name in re.findall(r"`([\w-]+)`", row)} == kinds


def test_a_vector_without_end_becomes_a_page_too(ggdp, tmp_path):
    record, page = tmp_path / "record.json", tmp_path / "page.html"
    line = "choose --epsilon 1 --delta 1e-6 --points 2 --norm 1 --dimension inf --json"
    record.write_text(ggdp(*line.split()).out)
    done = ggdp("report", record, "--html", page)
    assert (done.code, done.err) == (0, "")
    assert "any number of numbers" in page.read_text()


@pytest.mark.parametrize("command", ["choose", "simulate-argmax", "calibrate", "epsilon"])
def test_pure_privacy_becomes_a_page_too(ggdp, tmp_path, command):
    asked = {
        "choose": ("--epsilon", "1", "--steps", "2"),
        "simulate-argmax": ("--epsilon", "1", "--histograms", "5"),
        "calibrate": ("--beta", "1", "--epsilon", "1"),
        "epsilon": ("--beta", "1", "--std", "2"),
    }
    record, page = tmp_path / "record.json", tmp_path / "page.html"
    record.write_text(ggdp(command, *asked[command], "--delta", "0", "--json").out)
    assert errors(json.loads(record.read_text())) == []
    done = ggdp("report", record, "--html", page)
    assert (done.code, done.err) == (0, "")
    assert page.exists()
