# SPDX-License-Identifier: Apache-2.0
"""Figure 2: epsilon against the noise multiplier, one curve for each exponent.

python papers/generalized_gaussian/figure2_epsilon.py --out DIR
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("fig2", __doc__)
