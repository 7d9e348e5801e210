# SPDX-License-Identifier: Apache-2.0
"""What one release costs: the pair of output laws that an accountant sees."""
