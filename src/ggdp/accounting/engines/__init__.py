# SPDX-License-Identifier: Apache-2.0
"""Engines: each answers delta at an epsilon, and epsilon at a delta, of a composition of known pairs."""
