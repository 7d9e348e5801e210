# SPDX-License-Identifier: Apache-2.0
"""The commands `ggdp train`, `ggdp audit` and `ggdp reproduce`, which ggdp finds by their entry points."""
