# SPDX-License-Identifier: Apache-2.0
"""Vector releases for which no single worst shift is known: bounds from above, explicit shifts from below."""
