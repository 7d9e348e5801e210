# SPDX-License-Identifier: Apache-2.0
"""Figure 3: label accuracy of GGNMax against beta at equal privacy, on votes of 250 teachers.

python papers/generalized_gaussian/figure3_pate.py --out DIR --data DATA
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("fig3", __doc__)
