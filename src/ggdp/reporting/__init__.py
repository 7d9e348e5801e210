# SPDX-License-Identifier: Apache-2.0
"""What people read: facts, tables, figures and pages, made from finished results."""
