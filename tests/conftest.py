# SPDX-License-Identifier: Apache-2.0
"""Property tests draw the same examples every time; HYPOTHESIS_PROFILE=fresh draws new ones."""

import os

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("fresh", derandomize=False, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
