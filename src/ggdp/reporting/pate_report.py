# SPDX-License-Identifier: Apache-2.0
"""The report of `pate`: what may be published, and a box for what may not."""

from ggdp.reporting.answer_report import one_pair
from ggdp.reporting.certified_number import certified_number
from ggdp.reporting.record_fields import Fields
from ggdp.reporting.report import NO_BOUND, SEEDED, Picture, Report, detection_picture
from ggdp.reporting.rounding import rounded_up

_COUNTS = ("teachers", "queries", "answered", "abstained", "most_answers")
_PRIVATE = {
    "data_dependent_epsilon": "data-dependent epsilon",
    "expected_utility": "chance that the plurality wins, mean",
    "accuracy": "answered labels that are true",
}
_TRUSTED = (
    "Not checked: that each private record trained one teacher at most, so that one record moves one "
    "teacher's vote in each query. Whoever splits the records must see to that."
)
_WHATEVER_THE_VOTES = (
    "Epsilon holds whatever the votes are: every threshold check is charged, and as many answers as were "
    "allowed."
)
_PUBLISHABLE = "May be published: the labels, and everything on this page outside the box marked PRIVATE."


def pate_report(record: Fields, private_pictures: tuple[Picture, ...] = ()) -> Report:
    """A result of `pate`; pictures of the votes themselves go into the box."""
    secret, seeded = record.inside("private"), record.truth("seeded")
    bounds = certified_number("epsilon", record.inside("epsilon"))
    delta = record.real("delta", least=0.0, most=1.0)
    promise = None if seeded else one_pair(bounds.upper, delta, record.adjacency(), "teacher's vote")
    return Report(
        title="Labels by private vote",
        guarantee=promise,
        no_guarantee=SEEDED if seeded else NO_BOUND,
        settings=public_rows(record),
        proved=(
            *bounds.sentences(record.text("method")),
            _WHATEVER_THE_VOTES,
            *((_PUBLISHABLE,) if promise is not None else ()),
        ),
        estimated=(_TRUSTED,),
        private=private_rows(record),
        private_note=secret.text("caveat"),
        private_pictures=private_pictures,
        pictures=detection_picture(promise),
    )


def public_rows(record: Fields) -> dict[str, str]:
    """What is outside the box, as names and text."""
    settings = {name.replace("_", " "): str(record.whole(name)) for name in _COUNTS if record.holds(name)}
    settings["threshold"] = f"{record.real('threshold'):g}" if record.holds("threshold") else "none"
    noises = record.inside("noise")
    for name in noises.content:
        noise = noises.inside(name)
        told = (f"{key} = {noise.real(key):.6g}" for key in noise.content)
        settings[f"noise of the {name}"] = ", ".join(told)
    return settings


def private_rows(record: Fields) -> dict[str, str]:
    """What must not be published."""
    secret = record.inside("private")
    return {told: rounded_up(secret.real(name), 7) for name, told in _PRIVATE.items() if secret.holds(name)}
