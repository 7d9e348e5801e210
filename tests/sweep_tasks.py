# SPDX-License-Identifier: Apache-2.0
"""Functions for cells under test; found by their address, also in worker processes."""

import os
import time


def draw(config, surroundings):
    """A number from the cell's own randomness, after a while."""
    time.sleep(config.get("seconds", 0.0))
    return {"number": float(surroundings.rng.random()), "x": config["x"]}


def draw_and_tell(config, surroundings):
    """As `draw`, and leaves the number of its process where a test can read it."""
    (surroundings.data / f"{os.getpid()}.pid").touch()
    return draw(config, surroundings)


def fail_at_three(config, surroundings):
    if config["x"] == 3:
        raise ValueError("three is not for me")
    return draw(config, surroundings)


def not_a_number(config, surroundings):
    return {"number": float("nan")}


def lose_the_worker(config, surroundings):
    os._exit(1)


def variable(config, surroundings):
    """A variable of the environment where the cell runs; empty if there is none."""
    return {"x": config["x"], "found": os.environ.get(config["name"], "")}
