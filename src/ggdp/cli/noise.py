# SPDX-License-Identifier: Apache-2.0
"""`ggdp noise`: the facts about one noise distribution."""

from ggdp.cli import options, output
from ggdp.reporting.records import noise_facts, record_of


def noise(
    beta: options.Beta,
    scale: options.Scale = None,
    noise_multiplier: options.NoiseMultiplier = None,
    std: options.Std = None,
    sensitivity: options.Sensitivity = 1.0,
    json: options.Json = False,
) -> None:
    """Describe a noise: its scale, deviation and tails.

    Prints scale, standard deviation, Fisher information, and how often the noise is large.

    Example: ggdp noise --beta 1.5 --noise-multiplier 2 --json
    """
    facts = noise_facts(options.noise_from(beta, scale, noise_multiplier, std, sensitivity), sensitivity)
    if json:
        output.print_json(record_of("noise", [facts]))
    else:
        rows = {name.replace("_", " "): value for name, value in facts.items()}
        output.print_table("Generalized Gaussian noise", rows)
