# SPDX-License-Identifier: Apache-2.0
import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats

from ggdp import (
    AdditiveNoise,
    Composed,
    GeneralizedGaussian,
    PoissonSampled,
    SphericalGeneralizedGaussian,
    SphericalNoise,
    release,
)

NOISE = GeneralizedGaussian(beta=1.5, scale=1e-6)
MECHANISM = AdditiveNoise(NOISE)

KINDS = {
    "float": 2.5,
    "int": 7,
    "numpy-number": np.float32(3.5),
    "list": [1, 2, 3],
    "rows": [[1, 2], [3, 4]],
    "tuple": (1.0, 2.0),
    "vector": np.arange(5),
    "matrix": np.arange(6.0).reshape(2, 3),
    "zero-dimensional": np.array(4.0),
    "float32": np.ones((2, 2), dtype=np.float32),
    "pandas-series": pd.Series([1, 2], index=["a", "b"], name="n"),
    "pandas-nullable": pd.Series([1, 2], dtype="Int64"),
    "pandas-frame": pd.DataFrame({"x": [1, 2], "y": [0.5, 1.5]}, index=[10, 20]),
    "pandas-twin-columns": pd.DataFrame([[1, 2], [3, 4]], columns=["x", "x"]),
    "polars-series": pl.Series("n", [1, 2]),
    "polars-frame": pl.DataFrame({"x": [1, 2], "y": [0.5, 1.5]}),
}


def rng():
    return np.random.default_rng(12)


def numbers(value):
    return np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value, dtype=np.float64)


@pytest.mark.parametrize("value", KINDS.values(), ids=KINDS.keys())
def test_every_number_is_moved_a_little_and_the_kind_is_kept(value):
    noisy = release(MECHANISM, value, rng=rng())
    kind = float if np.isscalar(value) else type(value)
    assert type(noisy) is kind
    difference = numbers(noisy) - numbers(value)
    assert difference.shape == numbers(value).shape
    assert np.all(np.abs(difference) < 1e-4)
    if numbers(noisy).dtype == np.float64 and getattr(value, "dtype", None) != np.float32:
        assert np.all(difference != 0.0)
        assert len(np.unique(difference)) == difference.size


def test_pandas_keeps_index_names_columns_and_kind_of_dtype():
    series = release(MECHANISM, KINDS["pandas-series"], rng=rng())
    assert series.name == "n"
    assert list(series.index) == ["a", "b"]
    assert release(MECHANISM, KINDS["pandas-nullable"], rng=rng()).dtype == "Float64"
    mixed = pd.DataFrame({"x": [1, 2], "y": np.array([1, 2], dtype=np.float32)}, index=[10, 20])
    frame = release(MECHANISM, mixed, rng=rng())
    assert list(frame.columns) == ["x", "y"]
    assert list(frame.index) == [10, 20]
    assert list(frame.dtypes) == [np.float64, np.float32]


def test_polars_keeps_names_and_kind_of_dtype():
    assert release(MECHANISM, KINDS["polars-series"], rng=rng()).name == "n"
    mixed = pl.DataFrame({"x": [1, 2], "y": [1.0, 2.0]}, schema={"x": pl.Int64, "y": pl.Float32})
    assert release(MECHANISM, mixed, rng=rng()).schema == {"x": pl.Float64, "y": pl.Float32}


def test_float32_input_stays_float32():
    assert release(MECHANISM, KINDS["float32"], rng=rng()).dtype == np.float32


def test_the_input_is_left_as_it_was():
    exact = np.arange(4.0)
    release(MECHANISM, exact, rng=rng())
    np.testing.assert_array_equal(exact, np.arange(4.0))


def test_noise_follows_the_mechanism_law_and_not_a_wider_one():
    noise = GeneralizedGaussian(1.5, 2.0)
    exact = np.linspace(-5.0, 5.0, 300_000)
    drawn = release(AdditiveNoise(noise), exact, rng=rng()) - exact
    assert stats.kstest(drawn, noise.cdf).pvalue > 1e-4
    assert stats.kstest(drawn, GeneralizedGaussian(1.5, 2.06).cdf).pvalue < 1e-4


def test_without_a_generator_no_two_releases_agree():
    first, second = release(MECHANISM, np.zeros(100)), release(MECHANISM, np.zeros(100))
    assert len(np.unique(np.concatenate([first, second]))) == 200


def test_with_a_generator_the_release_can_be_repeated():
    assert release(MECHANISM, [1.0, 2.0], rng=rng()) == release(MECHANISM, [1.0, 2.0], rng=rng())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "value must hold at least one number, got an empty array of shape (0,)"),
        (math.nan, "value must hold finite numbers only, got nan"),
        ([1.0, math.inf], "got inf at position 1"),
        (np.array([[1.0, 2.0], [-math.inf, math.nan]]), "got -inf at position (1, 0), (1, 1)"),
        (np.full(9, math.nan), "got nan at position 0, 1, 2 and 6 more"),
        (True, "value must hold real numbers, got booleans such as True"),
        ("12", "value must hold real numbers, got text such as '12'"),
        ([1, "two"], "got text such as"),
        (1j, "got complex numbers such as 1j"),
        (None, "got mixed objects such as None"),
        ([[1], [2, 3]], "rows of unequal length"),
        (pd.Series([1.0, None]), "got nan at position 1"),
        (pd.Series([1, None], dtype="Int64"), "got nan at position 1"),
        (pd.Series([True]), "value must hold real numbers, got bool such as True"),
        (pd.DataFrame({"age": [1, 2], "name": ["x", "y"]}), "column 'name' must hold real numbers, got"),
        (
            pd.DataFrame({"age": [1.0, math.inf]}),
            "column 'age' must hold finite numbers only, got inf at position 1",
        ),
        (pd.DataFrame(), "empty table of shape (0, 0)"),
        (pd.Series([], dtype=float), "empty table of shape (0,)"),
        (pl.Series("n", [1, None]), "column 'n' must hold finite numbers only, got nan at position 1"),
        (pl.DataFrame({"t": ["a"]}), "column 't' must hold real numbers, got String such as 'a'"),
        (pl.DataFrame({"b": [True]}), "column 'b' must hold real numbers, got Boolean such as True"),
        (pl.DataFrame({"x": [1.0]}).lazy(), "call .collect()"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_released_is_refused_with_its_place(value, message):
    with pytest.raises(ValueError) as refusal:
        release(MECHANISM, value, rng=rng())
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        (PoissonSampled(MECHANISM, 0.1), "draw the sample of records yourself"),
        (Composed(MECHANISM, times=3), "call it once for each step"),
        (NOISE, "mechanism must be of type AdditiveNoise, got GeneralizedGaussian"),
    ],
    ids=["sampled", "composed", "noise"],
)
def test_release_adds_the_noise_of_one_step_only(mechanism, message):
    with pytest.raises(ValueError, match=message):
        release(mechanism, 1.0, rng=rng())


def test_a_seed_is_no_generator():
    with pytest.raises(ValueError, match="rng must be of type Generator or SecureGenerator, got int: 3"):
        release(MECHANISM, 1.0, rng=3)


# --- spherical noise


def test_spherical_noise_is_one_vector_over_all_numbers_of_the_value():
    noise = SphericalGeneralizedGaussian(beta=1.0, scale=2.0, dimension=6)
    value = np.arange(6.0).reshape(2, 3)
    released = release(SphericalNoise(noise), value, rng=np.random.default_rng(3))
    drawn = noise.sample((), rng=np.random.default_rng(3))
    assert np.array_equal(released, value + drawn.reshape(2, 3))
    assert isinstance(release(SphericalNoise(noise), [0.0] * 6), list)


def test_spherical_noise_of_another_dimension_is_refused():
    step = SphericalNoise(SphericalGeneralizedGaussian(beta=1.0, scale=2.0, dimension=6))
    with pytest.raises(
        ValueError, match="value must hold as many numbers as the noise has dimensions, 6, got 5"
    ):
        release(step, np.zeros(5))
