# SPDX-License-Identifier: Apache-2.0
"""Figure 1: densities of equally private Generalized Gaussian mechanisms.

python papers/generalized_gaussian/figure1_densities.py --out DIR
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("fig1", __doc__)
