# SPDX-License-Identifier: Apache-2.0
"""The tests of an optional backend are there where it is installed."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("ray") else ["test_ray.py"]
