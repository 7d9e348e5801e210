# SPDX-License-Identifier: Apache-2.0
"""The paper's figures and tables, each from a configuration that is data, as sweeps that survive."""
