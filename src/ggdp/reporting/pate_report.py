# SPDX-License-Identifier: Apache-2.0
"""The report of `pate`: what may be published, and a box for what may not."""

from ggdp.reporting.answer_report import one_pair
from ggdp.reporting.certified_number import certified_number
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import NO_BOUND, SEEDED, Report, detection_picture

_COUNTS = ("queries", "answered", "abstained", "most_answers")
_PRIVATE = ("data_dependent_epsilon", "expected_utility", "accuracy")
_TRUSTED = (
    "Not checked: that each private record trained one teacher at most, so that one record moves one "
    "teacher's vote in each query. Whoever splits the records must see to that."
)


def pate_report(record: Fields) -> Report:
    """A record of `pate`."""
    shown, secret, seeded = record.inside("publishable"), record.inside("private"), record.truth("seeded")
    achieved = shown.inside("achieved")
    bounds = certified_number("epsilon", achieved.inside("epsilon"))
    delta = achieved.real("delta", least=0.0, most=1.0)
    promise = None if seeded else one_pair(bounds.upper, delta, shown.adjacency(), "teacher's vote")
    return Report(
        title="Labels by private vote",
        guarantee=promise,
        no_guarantee=SEEDED if seeded else NO_BOUND,
        settings=_settings(shown),
        proved=bounds.sentences("composition of all threshold checks and answers"),
        estimated=(_TRUSTED,),
        private={
            name.replace("_", " "): f"{secret.real(name):.6g}" for name in _PRIVATE if secret.holds(name)
        },
        private_note=secret.text("caveat"),
        pictures=detection_picture(promise),
    )


def _settings(shown: Fields) -> dict[str, str]:
    settings = {name.replace("_", " "): str(shown.whole(name)) for name in _COUNTS if shown.holds(name)}
    settings["threshold"] = f"{shown.real('threshold'):g}" if shown.holds("threshold") else "none"
    noises = shown.inside("noise")
    for name in noises.content:
        noise = noises.inside(name)
        told = (f"{key} = {noise.real(key):.6g}" for key in noise.content)
        settings[f"noise of the {name}"] = ", ".join(told)
    return settings
