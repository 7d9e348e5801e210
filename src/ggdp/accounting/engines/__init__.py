# SPDX-License-Identifier: Apache-2.0
"""The engines, which compute delta and epsilon of a composition with a proved error: docs/engines.md.

| module | what it has |
|---|---|
| `curve` | what an engine returns, how epsilon is found on it, and the engine for one release |
| `pairs` | answers for compositions of known pairs, from what engines certify; it is called from outside |
| `attempts` | which engines are tried in turn, and where the curve of each is drawn |
| `cells` | the same for compositions with custom mechanisms |
| `contour`, `cut_off`, `characteristic` | the contour: an integral, where it may end, and its integrand |
| `rare`, `jumps`, `jump_plan`, `polynomial` | contours where rare large losses decide |
| `lattice`, `grid_law`, `atoms` | losses on a grid, and discrete losses |
| `moments` | bounds that always exist, and are wide |
| `tilt` | plans: rough numbers that say where to compute |
| `kept` | curves that were built, for further questions |
"""
