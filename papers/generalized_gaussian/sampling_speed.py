# SPDX-License-Identifier: Apache-2.0
"""The claim on sampling speed.

python papers/generalized_gaussian/sampling_speed.py --out DIR
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("speed", __doc__)
