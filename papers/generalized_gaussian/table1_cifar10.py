# SPDX-License-Identifier: Apache-2.0
"""Table 1: accuracy on CIFAR-10 at epsilon = 1, 2, 3 and delta = 1e-6; trains where there is a GPU.

python papers/generalized_gaussian/table1_cifar10.py --out DIR --data DATA

DATA holds cifar-10-batches-py or cifar-10-batches-bin. Features are computed on the GPU. A run takes 8 to 20
seconds on an H200, and is kept as it ends: stopped after some minutes and given again, the command goes on.
Without --data, or without a GPU, the table is read from the record that is kept with the package.
"""

from run_figure import run_figure

if __name__ == "__main__":
    run_figure("table1", __doc__)
