# SPDX-License-Identifier: Apache-2.0
"""Series and DataFrames of pandas and polars: numbers out, numbers in, the same kind back.

Neither library is imported here: a value can only be theirs if the caller has imported them already.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggdp import arguments

Transform = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def is_table(value: Any) -> bool:
    """Whether `value` is a Series or DataFrame of pandas or polars."""
    return _library_of(value) is not None


def transform(table: Any, function: Transform) -> Any:
    """Apply `function` to the numbers of a table, as one array of shape [rows, columns]; names are kept.

    Raises:
        ValueError: The table is empty, or a column holds text, booleans, missing or non-finite values.
    """
    library = _library_of(table)
    series = [table] if isinstance(table, library.Series) else _columns(table)
    if not series or len(table) == 0:
        raise ValueError(f"value must hold at least one number, got an empty table of shape {table.shape}")
    numbers = np.stack([_numbers(column) for column in series], axis=1)
    noisy = function(numbers)
    if library.__name__ == "polars":
        return _polars_like(library, table, series, noisy)
    return _pandas_like(library, table, series, noisy)


def rows(records: Any, kept: NDArray[np.bool_]) -> Any:
    """The records that are kept: rows of a table or an array, or a list."""
    if is_table(records):
        return records[kept] if hasattr(records, "iloc") else records.filter(kept)
    if isinstance(records, np.ndarray):
        return records[kept]
    return [record for record, is_kept in zip(records, kept, strict=True) if is_kept]


def float32_numbers(table: Any) -> NDArray[np.float64]:
    """The numbers of those columns that hold them in 32 bits, in one row."""
    library = _library_of(table)
    series = [table] if isinstance(table, library.Series) else _columns(table)
    narrow = [_numbers(column).ravel() for column in series if "float32" in str(column.dtype).lower()]
    return np.concatenate([np.empty(0), *narrow])


def _library_of(value: Any) -> Any:
    for name in ("pandas", "polars"):
        library = sys.modules.get(name)
        if library is not None and isinstance(value, (library.Series, library.DataFrame)):
            return library
    lazy = getattr(sys.modules.get("polars"), "LazyFrame", None)
    if lazy is not None and isinstance(value, lazy):
        raise ValueError(
            "value must be a table that holds its numbers, got a polars LazyFrame; call .collect()"
        )
    return None


def _columns(frame: Any) -> list[Any]:
    if hasattr(frame, "iloc"):
        return [frame.iloc[:, position] for position in range(frame.shape[1])]
    return list(frame.get_columns())


def _numbers(column: Any) -> NDArray[np.float64]:
    """The column's numbers, or a refusal that names the column and the row."""
    name = f"column {column.name!r}" if column.name not in (None, "") else "value"
    if not _is_numeric(column):
        example = next(iter(column.to_list()), None)
        raise ValueError(f"{name} must hold real numbers, got {column.dtype} such as {example!r}")
    if hasattr(column, "iloc"):
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        numbers = column.cast(sys.modules["polars"].Float64).to_numpy()
    found = arguments.finite_array(name, numbers)
    if "int" in str(column.dtype).lower() and np.any(np.abs(found) >= 2.0**53):
        raise ValueError(f"{name} must hold whole numbers below 2^53, which doubles have exactly")
    return found


def _is_numeric(column: Any) -> bool:
    if hasattr(column, "iloc"):
        types = sys.modules["pandas"].api.types
        return bool(types.is_numeric_dtype(column.dtype)) and not (
            types.is_bool_dtype(column.dtype) or types.is_complex_dtype(column.dtype)
        )
    return bool(column.dtype.is_numeric())


def _pandas_like(pandas: Any, table: Any, columns: list[Any], noisy: NDArray[np.float64]) -> Any:
    released = []
    for position, column in enumerate(columns):
        series = pandas.Series(noisy[:, position], index=column.index, name=column.name)
        if column.dtype == np.float32:
            series = series.astype(np.float32)
        elif isinstance(column.dtype, pandas.api.extensions.ExtensionDtype):
            arrow = isinstance(column.dtype, pandas.ArrowDtype)
            series = series.astype("double[pyarrow]" if arrow else "Float64")
        released.append(series)
    if isinstance(table, pandas.Series):
        return released[0]
    frame = pandas.concat(released, axis=1)
    frame.columns = table.columns
    return frame


def _polars_like(polars: Any, table: Any, columns: list[Any], noisy: NDArray[np.float64]) -> Any:
    released = []
    for position, column in enumerate(columns):
        series = polars.Series(column.name, noisy[:, position])
        released.append(series.cast(polars.Float32) if column.dtype == polars.Float32 else series)
    return released[0] if isinstance(table, polars.Series) else polars.DataFrame(released)
