# SPDX-License-Identifier: Apache-2.0
"""Histories that other libraries keep, read as mechanisms."""
