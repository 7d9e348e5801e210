# SPDX-License-Identifier: Apache-2.0
"""The experiments of the paper on the Generalized Gaussian mechanism, which ggdp does not import.

`tasks` are data and models to train on, `figures` the paper's figures and tables, `sweep` and `reproduce` run
them, and `cli` adds the commands `ggdp train`, `ggdp audit` and `ggdp reproduce`.
"""
