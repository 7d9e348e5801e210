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
    DiscreteGeneralizedGaussian,
    GeneralizedGaussian,
    GridNoise,
    Laplace,
    PoissonSampled,
    SphericalGeneralizedGaussian,
    SphericalNoise,
    epsilon,
    release,
    secure_generator,
)
from ggdp.mechanisms.release import grid_of

NOISE = GeneralizedGaussian(beta=1.5, scale=1e-6)
MECHANISM = AdditiveNoise.histogram(NOISE)

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
    drawn = release(AdditiveNoise.histogram(noise), exact, rng=rng()) - exact
    assert stats.kstest(drawn, noise.cdf).pvalue > 1e-4
    assert stats.kstest(drawn, GeneralizedGaussian(1.5, 2.06).cdf).pvalue < 1e-4


def test_without_a_generator_no_two_releases_agree():
    first, second = release(MECHANISM, np.zeros(100)), release(MECHANISM, np.zeros(100))
    assert np.sum(first == second) < 10
    assert len(np.unique(np.concatenate([first, second]))) > 150


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
        (PoissonSampled(MECHANISM, 0.1), "query must be given for a PoissonSampled mechanism"),
        (Composed(MECHANISM, times=3), "call it once for each step"),
        (
            NOISE,
            "mechanism must be of type AdditiveNoise or GridNoise or SphericalNoise, got GeneralizedGaussian",
        ),
    ],
    ids=["sampled", "composed", "noise"],
)
def test_release_adds_the_noise_of_one_step_only(mechanism, message):
    with pytest.raises(ValueError, match=message):
        release(mechanism, 1.0, rng=rng())


RECORDS = {
    "list": list(range(200)),
    "range": range(200),
    "rows": np.arange(400).reshape(200, 2),
    "pandas": pd.DataFrame({"x": np.arange(200)}, index=np.arange(200, 0, -1)),
    "pandas-series": pd.Series(np.arange(200)),
    "polars": pl.DataFrame({"x": np.arange(200)}),
}


@pytest.mark.parametrize("records", RECORDS.values(), ids=RECORDS.keys())
def test_a_sampled_release_asks_the_query_of_a_sample_of_the_same_kind(records):
    seen = []
    quiet = PoissonSampled(MECHANISM, 0.3)
    release(quiet, records, lambda kept: float(len(seen.append(kept) or kept)), rng=rng())
    assert type(seen[0]) is (list if isinstance(records, range) else type(records))
    assert 30 < len(seen[0]) < 90
    everybody = release(PoissonSampled(MECHANISM, 1.0), records, len, rng=rng())
    assert everybody == pytest.approx(200.0, abs=1e-4)


def test_a_sampled_release_has_the_rate_and_the_noise_that_are_accounted_for():
    generator = rng()
    counts = [release(PoissonSampled(MECHANISM, 0.3), range(200), len, rng=generator) for _ in range(400)]
    assert np.mean(counts) == pytest.approx(60.0, abs=4.0 * math.sqrt(42.0 / 400.0))
    assert np.std(counts) == pytest.approx(math.sqrt(42.0), rel=0.15)
    loud = PoissonSampled(AdditiveNoise(GeneralizedGaussian(beta=2, scale=100.0)), 0.5)
    noisy = [release(loud, range(10), len, rng=generator) for _ in range(400)]
    assert np.std(noisy) == pytest.approx(100.0 / math.sqrt(2.0), rel=0.15)
    assert release(loud, range(10), len) != release(loud, range(10), len)


@pytest.mark.parametrize(
    ("mechanism", "value", "query", "message"),
    [
        (PoissonSampled(MECHANISM, 0.1), [1], 3, "query must be given for a PoissonSampled mechanism"),
        (PoissonSampled(MECHANISM, 0.1), 5.0, len, "value must hold the records, a sequence"),
        (PoissonSampled(MECHANISM, 0.1), "people", len, "value must hold the records, a sequence"),
        (PoissonSampled(MECHANISM, 0.1), np.array(5.0), len, "one in each row, got an array of a single"),
        (MECHANISM, [1.0], len, "query must be left out unless the mechanism is PoissonSampled"),
    ],
)
def test_a_sampled_release_is_refused_before_anything_is_drawn(mechanism, value, query, message):
    generator = rng()
    with pytest.raises(ValueError, match=message):
        release(mechanism, value, query, rng=generator)
    assert generator.random() == rng().random()


def test_a_seed_is_no_generator():
    with pytest.raises(ValueError, match="rng must be of type Generator or SecureGenerator, got int: 3"):
        release(MECHANISM, 1.0, rng=3)


def no_draws():
    """A generator that says so if anything is drawn from it."""
    generator = secure_generator()
    return generator, lambda: "0 blocks" in repr(generator)


@pytest.mark.parametrize("scale", [1.0, 0.999, 1e-6, 12345.0])
def test_what_leaves_is_a_multiple_of_the_grid_at_most_a_1024th_of_the_scale(scale):
    noise = Laplace(scale)
    grid = grid_of(noise)
    assert scale / 2048 < grid <= scale / 1024
    for value in (0.0, 1.0 / 3.0 * scale, -7.0 * scale):
        noisy = release(AdditiveNoise.histogram(noise), np.full(1000, value), rng=rng())
        assert np.all(noisy / grid == np.rint(noisy / grid))
    whole = release(AdditiveNoise(noise, grid=8.0 * grid), 5.0 * scale, rng=rng())
    assert whole / (8.0 * grid) == round(whole / (8.0 * grid))


@pytest.mark.parametrize(
    ("mechanism", "value", "message"),
    [
        (AdditiveNoise(Laplace(1.0)), 1e19, "the noise would be lost in its rounding"),
        (AdditiveNoise(Laplace(1.0)), [1.0, 2.0], "at most 1 numbers, the dimension of the mechanism, got 2"),
        (AdditiveNoise.histogram(Laplace(1.0)), np.ma.array([1.0, 2.0], mask=[0, 1]), "a masked array"),
        (AdditiveNoise(Laplace(1.0)), np.float32(2.0**30), "closer than half the scale of the noise"),
        (AdditiveNoise(Laplace(1.0)), np.array([2.0**30], np.float32), "closer than half the scale"),
        (AdditiveNoise(Laplace(1.0)), pd.Series([2.0**30], dtype="float32"), "closer than half the scale"),
        (AdditiveNoise(Laplace(1e6)), 2**60 + 1, "whole numbers below 2^53"),
        (AdditiveNoise(Laplace(1e6)), pd.Series([2**60 + 1]), "whole numbers below 2^53"),
        (AdditiveNoise(Laplace(1.0)), math.nan, "finite numbers only"),
        (GridNoise(DiscreteGeneralizedGaussian(2, 3.0)), 0.5, "multiples of the grid, 1, got 0.5"),
        (GridNoise(DiscreteGeneralizedGaussian(2, 3.0)), 2.0**53, "the noise would be lost in its rounding"),
        (GridNoise(DiscreteGeneralizedGaussian(2, 3.0)), [1, 2], "at most 1 numbers"),
        (GridNoise(DiscreteGeneralizedGaussian(2, 3.0)), math.inf, "finite numbers only"),
    ],
)
def test_what_cannot_be_protected_is_refused_before_anything_is_drawn(mechanism, value, message):
    generator, untouched = no_draws()
    with pytest.raises(ValueError, match=message.replace("^", "\\^")):
        release(mechanism, value, rng=generator)
    assert untouched()


@pytest.mark.parametrize("grid", [0.3, -1.0, 2.0**-40, 16.0, math.nan])
def test_a_grid_that_is_no_power_of_two_or_does_not_fit_the_noise_is_refused(grid):
    with pytest.raises(ValueError, match="grid must be"):
        AdditiveNoise(Laplace(1.0), grid=grid)


def test_a_histogram_of_any_length_has_the_cost_of_one_count():
    noise = GeneralizedGaussian(1.5, 3.0)
    assert (
        epsilon(AdditiveNoise.histogram(noise), delta=1e-6).upper
        == epsilon(AdditiveNoise(noise), delta=1e-6).upper
    )
    rounded = AdditiveNoise.histogram(noise, grid=1)
    assert epsilon(rounded, delta=1e-6).upper == epsilon(AdditiveNoise(noise), delta=1e-6).upper
    assert len(release(rounded, [1] * 50)) == 50


def test_grid_noise_adds_whole_steps_to_values_rounded_halves_up():
    mechanism = GridNoise(DiscreteGeneralizedGaussian(64, 2.0**-6), 0.3, 0.25, 5, on_grid=False)  # no noise
    assert release(mechanism, [0.3, 0.125, -0.125, 0.37, -2.0]) == [0.25, 0.25, 0.0, 0.25, -2.0]
    noise = DiscreteGeneralizedGaussian(1.5, 4.0)
    drawn = release(GridNoise(noise, dimension=math.inf), np.full(50_000, 7), rng=rng()) - 7.0
    assert np.all(drawn == np.rint(drawn))
    assert np.std(drawn) == pytest.approx(noise.std, rel=0.02)


@pytest.mark.parametrize("on_grid", [True, False])
@pytest.mark.parametrize("grid", [0.125, 1.0, 4.0])
def test_no_neighbours_lie_further_apart_on_the_grid_than_the_steps_say(grid, on_grid):
    draw, tightest = np.random.default_rng(3), 0
    sensitivity, dimension = 5.0, 3
    mechanism = GridNoise(DiscreteGeneralizedGaussian(2, 3.0), sensitivity, grid, dimension, on_grid)
    for _ in range(4000):
        one = grid * draw.integers(-40, 40, dimension) + (
            0.0 if on_grid else draw.choice([0.0, 0.499, 0.5], 3)
        )
        move = draw.dirichlet([0.3] * dimension) * sensitivity * draw.choice([-1, 1], dimension)
        other = one + (grid * np.trunc(move / grid) if on_grid else move * (1.0 - 1e-12))
        found = int(np.abs(mechanism.multiples(one) - mechanism.multiples(other)).sum())
        assert found <= mechanism.steps
        tightest = max(tightest, found)
    assert tightest >= mechanism.steps - 1


def test_the_float_path_is_there_for_those_who_ask_for_it():
    noisy = release(AdditiveNoise(Laplace(1.0)), 0.0, rng=rng(), exact=False)
    assert noisy / 2.0**-40 != round(noisy / 2.0**-40)
    with pytest.raises(ValueError, match="lost in its rounding"):
        release(AdditiveNoise(Laplace(1.0)), 1e19, exact=False)


# --- spherical noise


def test_spherical_noise_is_one_vector_over_all_numbers_of_the_value():
    noise = SphericalGeneralizedGaussian(beta=1.0, scale=2.0, dimension=6)
    value = np.arange(6.0).reshape(2, 3)
    released = release(SphericalNoise(noise), value, rng=np.random.default_rng(3), exact=False)
    drawn = noise.sample((), rng=np.random.default_rng(3))
    assert np.array_equal(released, value + drawn.reshape(2, 3))
    assert isinstance(release(SphericalNoise(noise), [0.0] * 6, exact=False), list)


def test_spherical_noise_of_another_dimension_is_refused():
    step = SphericalNoise(SphericalGeneralizedGaussian(beta=1.0, scale=2.0, dimension=6))
    with pytest.raises(
        ValueError, match="value must hold as many numbers as the noise has dimensions, 6, got 5"
    ):
        release(step, np.zeros(5), exact=False)


def test_spherical_noise_is_not_passed_off_as_exact():
    step = SphericalNoise(SphericalGeneralizedGaussian(beta=1.0, scale=2.0, dimension=6))
    with pytest.raises(ValueError, match="exact must be False for SphericalNoise"):
        release(step, np.zeros(6))
