# SPDX-License-Identifier: Apache-2.0
"""Whether a record keeps to the schema that ships with the package: a validator of what the schema uses."""

import json
from importlib import resources

SCHEMA = json.loads((resources.files("ggdp.reporting") / "record.schema.json").read_text())

_TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "null": lambda value: value is None,
}
_KNOWN = {
    "$schema", "$defs", "title", "description", "$ref", "type", "required", "properties", "items", "minItems",
    "additionalProperties", "enum", "const", "anyOf", "allOf", "minimum", "maximum", "exclusiveMinimum",
}  # fmt: skip


def errors(value, schema=SCHEMA, place="record"):
    """Every way in which the value breaks the schema, one line each."""
    assert set(schema) <= _KNOWN, f"the validator does not know {set(schema) - _KNOWN}"
    if "$ref" in schema:
        return errors(value, SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], place)
    found = [*_of_value(value, schema, place)]
    if isinstance(value, dict):
        found += _of_object(value, schema, place)
    if isinstance(value, list):
        found += [f"{place} has {len(value)} items"] * (len(value) < schema.get("minItems", 0))
        for number, one in enumerate(value):
            found += errors(one, schema.get("items", {}), f"{place}[{number}]")
    for inner in schema.get("allOf", ()):
        found += errors(value, inner, place)
    if "anyOf" in schema:
        ways = [errors(value, inner, place) for inner in schema["anyOf"]]
        found += [] if [] in ways else min(ways, key=len)
    return found


def _of_value(value, schema, place):
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_TYPES[kind](value) for kind in kinds):
        yield f"{place} is {type(value).__name__}, not {' or '.join(kinds)}"
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        yield f"{place} is {value!r}"
    if _TYPES["number"](value) and not (
        schema.get("minimum", value) <= value <= schema.get("maximum", value)
        and ("exclusiveMinimum" not in schema or value > schema["exclusiveMinimum"])
    ):
        yield f"{place} is {value!r}"


def _of_object(value, schema, place):
    found = [f"{place}.{name} is missing" for name in schema.get("required", ()) if name not in value]
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, one in value.items():
        if name in known:
            found += errors(one, known[name], f"{place}.{name}")
        elif others is False:
            found.append(f"{place}.{name} is unknown")
        else:
            found += errors(one, others, f"{place}.{name}")
    return found
