# SPDX-License-Identifier: Apache-2.0
"""A small made-up table, so that the demonstration needs no download.

A town counts the readers of its twelve library branches, each reader at one branch, and lets the readers vote
on the name of a bridge. Adding or removing one reader moves one count by one.
"""

READERS_BY_BRANCH = {
    "Abbey": 412,
    "Bank": 138,
    "Castle": 967,
    "Dock": 75,
    "East": 544,
    "Fair": 231,
    "Green": 689,
    "Hill": 49,
    "Inn": 318,
    "Lake": 820,
    "Mill": 156,
    "North": 603,
}

VOTES_BY_NAME = {"Heron": 171, "Weir": 168, "Miller": 160, "Century": 94, "Low": 57}
