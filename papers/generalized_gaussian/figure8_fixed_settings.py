# SPDX-License-Identifier: Apache-2.0
"""Figure 8: the sweep of figure 6 with one hyperparameter held fixed.

python papers/generalized_gaussian/figure8_fixed_settings.py --out DIR --data DATA
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("fig8", __doc__)
