# SPDX-License-Identifier: Apache-2.0
"""Figure 6 on IMDB, the sweep with an LSTM of 1,081,002 parameters; trains where there is a GPU.

python papers/generalized_gaussian/figure6_imdb.py --out DIR --data DATA

DATA holds aclImdb. A run takes about 40 seconds on an H200, and is kept as it ends.
Without --data, or without a GPU, the figure is read from the record that is kept with the package.
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("fig6_imdb", __doc__)
