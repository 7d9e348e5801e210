# SPDX-License-Identifier: Apache-2.0
"""Figure 5: hardmax utility of simulated votes against the runner-up gap, and its area.

python papers/generalized_gaussian/figure5_hardmax.py --out DIR
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("fig5", __doc__)
