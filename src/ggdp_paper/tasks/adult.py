# SPDX-License-Identifier: Apache-2.0
"""UCI Adult: is a person's income above 50,000 dollars? 123 binary columns, a net with 32 hidden units.

The columns are those of LIBSVM's a9a: one for each value that `adult.names` lists, and groups for the
continuous ones, 5 + 8 + 5 + 16 + 5 + 7 + 14 + 6 + 5 + 2 + 2 + 2 + 5 + 41 = 123. LIBSVM takes the borders of
the groups from quantiles of the data, which would leak; here they are fixed round numbers, so that what
becomes of a row depends on that row alone and preprocessing costs no privacy. An unknown value ("?") has no
column.
"""

import csv
import io
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import TensorDataset

from ggdp_paper.tasks.task import Defaults, Request, Task, initialised, located, synthetic_variant

PUBLISHED = "https://archive.ics.uci.edu/dataset/2/adult"
DEFAULTS = Defaults(batch_size=512, clip_norm=0.5, learning_rate=4.0, momentum=0.0, epochs=10)
HIDDEN = 32

Borders = tuple[float, ...]
"""The largest value of each group but the last."""
Values = tuple[str, ...]

COLUMNS: tuple[tuple[str, Borders | Values], ...] = (
    ("age", (25.0, 35.0, 45.0, 55.0)),
    ("workclass", ("Private", "Self-emp-not-inc", "Self-emp-inc", "Federal-gov", "Local-gov", "State-gov",
                   "Without-pay", "Never-worked")),
    ("fnlwgt", (1e5, 1.5e5, 2e5, 2.5e5)),
    ("education", ("Bachelors", "Some-college", "11th", "HS-grad", "Prof-school", "Assoc-acdm", "Assoc-voc",
                   "9th", "7th-8th", "12th", "Masters", "1st-4th", "10th", "Doctorate", "5th-6th",
                   "Preschool")),
    ("education-num", (8.0, 9.0, 10.0, 12.0)),
    ("marital-status", ("Married-civ-spouse", "Divorced", "Never-married", "Separated", "Widowed",
                        "Married-spouse-absent", "Married-AF-spouse")),
    ("occupation", ("Tech-support", "Craft-repair", "Other-service", "Sales", "Exec-managerial",
                    "Prof-specialty", "Handlers-cleaners", "Machine-op-inspct", "Adm-clerical",
                    "Farming-fishing", "Transport-moving", "Priv-house-serv", "Protective-serv",
                    "Armed-Forces")),
    ("relationship", ("Wife", "Own-child", "Husband", "Not-in-family", "Other-relative", "Unmarried")),
    ("race", ("White", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other", "Black")),
    ("sex", ("Female", "Male")),
    ("capital-gain", (0.0,)),
    ("capital-loss", (0.0,)),
    ("hours-per-week", (30.0, 39.0, 40.0, 50.0)),
    ("native-country", ("United-States", "Cambodia", "England", "Puerto-Rico", "Canada", "Germany",
                        "Outlying-US(Guam-USVI-etc)", "India", "Japan", "Greece", "South", "China", "Cuba",
                        "Iran", "Honduras", "Philippines", "Italy", "Poland", "Jamaica", "Vietnam", "Mexico",
                        "Portugal", "Ireland", "France", "Dominican-Republic", "Laos", "Ecuador", "Taiwan",
                        "Haiti", "Columbia", "Hungary", "Guatemala", "Nicaragua", "Scotland", "Thailand",
                        "Yugoslavia", "El-Salvador", "Trinadad&Tobago", "Peru", "Hong",
                        "Holand-Netherlands")),
)  # fmt: skip
"""Each attribute, in the files' order: its values as adult.names lists them, or the borders of its groups."""

_LABELS = {"<=50K": 0, ">50K": 1}


def width(groups: Borders | Values) -> int:
    """Binary columns of one attribute."""
    return len(groups) if isinstance(groups[0], str) else len(groups) + 1


WIDTH = sum(width(groups) for _, groups in COLUMNS)


def load(request: Request) -> Task:
    """32,561 examples for training, the published 16,281 for the score."""
    if request.synthetic is not None:
        return synthetic_variant(Task("adult", *_synthetic(request), build, DEFAULTS))
    folder = request.folder("adult", holding="adult.data and adult.test", published=PUBLISHED)
    parts = []
    for name in ("adult.data", "adult.test"):
        columns, labels = encoded(located(folder, (name, f"adult/{name}"), published=PUBLISHED))
        parts.append(
            TensorDataset(
                torch.from_numpy(columns).to(request.device), torch.from_numpy(labels).to(request.device)
            )
        )
    return Task("adult", parts[0], parts[1], build, DEFAULTS)


def build(generator: torch.Generator) -> nn.Module:
    """123-32-2 with ReLU, 4,034 parameters."""
    return initialised(
        lambda: nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2)), generator
    )


def encoded(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The binary columns and labels of one published file.

    Raises:
        ValueError: A line has other than 15 fields, or a value that adult.names does not list; the message
            names file and line.
    """
    columns, labels = [], []
    try:
        rows = list(csv.reader(io.StringIO(path.read_text("ascii"), newline=""), skipinitialspace=True))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{str(path)!r} must hold rows of Adult, in ASCII, got byte {error.start} undecodable"
        ) from None
    except csv.Error as error:
        raise ValueError(f"{str(path)!r} must hold rows of Adult: {error}") from None
    for number, fields in enumerate(rows, start=1):
        if not fields or fields[0].startswith("|"):  # adult.test begins with a comment
            continue
        try:
            columns.append(_row(fields))
            labels.append(_LABELS[fields[-1].rstrip(".")])
        except (ValueError, KeyError) as error:
            raise ValueError(f"line {number} of {str(path)!r} is not a row of Adult: {error}") from None
    if not labels:
        raise ValueError(f"{str(path)!r} must hold rows of Adult, got none")
    return np.stack(columns), np.array(labels, dtype=np.int64)


def _row(fields: list[str]) -> NDArray[np.float32]:
    if len(fields) != len(COLUMNS) + 1:
        raise ValueError(f"expected {len(COLUMNS) + 1} fields, got {len(fields)}")
    row = np.zeros(WIDTH, dtype=np.float32)
    start = 0
    for (name, groups), field in zip(COLUMNS, fields, strict=False):
        place = _place(name, groups, field)
        if place is not None:
            row[start + place] = 1.0
        start += width(groups)
    return row


def _place(name: str, groups: Borders | Values, field: str) -> int | None:
    if field == "?":
        return None
    if isinstance(groups[0], str):
        try:
            return groups.index(field)
        except ValueError:
            raise ValueError(f"{name} must be one of the values in adult.names, got {field!r}") from None
    return int(np.searchsorted(groups, float(field), side="left"))


def _synthetic(request: Request) -> tuple[TensorDataset, TensorDataset]:
    """Rows with one column of each group, and a label by a random linear rule."""
    generator = request.synthetic
    weights = [torch.randn(width(groups), generator=generator) for _, groups in COLUMNS]
    rule = torch.cat([part - part.mean() for part in weights])

    def drawn(number: int) -> TensorDataset:
        parts = [
            nn.functional.one_hot(torch.randint(width(groups), (number,), generator=generator), width(groups))
            for _, groups in COLUMNS
        ]
        rows = torch.cat(parts, dim=1).float()
        return TensorDataset(rows.to(request.device), (rows @ rule > 0.0).long().to(request.device))

    return drawn(512), drawn(256)
