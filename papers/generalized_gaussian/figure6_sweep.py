# SPDX-License-Identifier: Apache-2.0
"""Figure 6, the paper's sweep: best accuracy of beta-DP-SGD before each budget is spent, Adult.

python papers/generalized_gaussian/figure6_sweep.py --out DIR --data DATA
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("fig6", __doc__)
