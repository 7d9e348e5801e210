# SPDX-License-Identifier: Apache-2.0
"""What one release costs: the pair (P, Q) of output laws, and the numbers computed from it.

| module | what it has |
|---|---|
| `shift_pair`, `dominating` | the pair of one release of Generalized Gaussian noise, and the worst one |
| `hockey_stick` | delta of one release, in closed form |
| `quadrature`, `panel_error`, `decay` | moment generating functions of the loss, and how fast they fall |
| `cells`, `curves` | any pair between two discrete ones: by cells of outcomes, or by values of delta |
| `custom`, `density`, `enclosure` | mechanisms that users describe, as cells |
| `classical` | releases with a known worst pair, such as randomized response and discrete noise |
| `allocation` | a record in one of several releases, chosen at random |
| `spherical` | spherical noise, as cells |
| `matched_norm`, `score_envelope`, `envelope_noise` | numbers that dominate vectors |
| `renyi_divergence`, `renyi_panels`, `worst_split` | Renyi divergences, of numbers and of vectors |
"""
