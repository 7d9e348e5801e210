# SPDX-License-Identifier: Apache-2.0
"""Figure 4: tail weight against beta at equal privacy.

python papers/generalized_gaussian/figure4_outliers.py --out DIR
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("fig4", __doc__)
