"""What is wrong with a setting's value, in plain words and with an example.

pydantic tells what Python type it wanted. People want to know what to write: where a setting has an
example here it is told, else what the kind of value is.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import ValidationError

SETTING_EXAMPLES: Final[Mapping[str, str]] = {
    "tolerance": "a share, like 0.1, or one for each direction, like {out: 0.05, in: 0.2}",
    "kafka": "librdkafka's names and values, like {security.protocol: SSL}",
    "schedule": 'a list of periods, like [{start: "0 8 * * 1-5", end: "0 18 * * 1-5", '
    "timezone: Europe/Rome, min: 4}]",
    "scale-down-policies": "a number of replicas, like 1, or policies, like "
    "[{type: percent, value: 10, period: 5 min}]",
    "scale-up-policies": "a number of replicas, like 4, or policies, like "
    "[{type: percent, value: 100, period: 60 s}]",
    "topics": 'names with commas, like "orders,clicks", or one pattern, like "^lake-.*"',
    "worker-command": 'a list of words, like ["python", "worker.py", "{instance}"]; {instance} '
    "becomes the worker's name",
    "workload": "deployment/NAME or statefulset/NAME, like deployment/lake",
}
"""What a setting wants, where its kind alone does not tell."""

TYPE_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "bool": "true or false",
    "float": "a number, like 0.9",
    "int": "a whole number, like 3",
    "path": "a path, like /etc/trimtab/file",
    "string": "text; put it into quotes",
}
"""What pydantic's error types mean, by their first word."""

SHAPE_ERROR_TYPES: Final = frozenset(
    {"dict_type", "model_type", "tuple_type", "string_pattern_mismatch"}
)
"""Error types that say that the whole is of another shape."""

CHOICE_ERROR_TYPES: Final = frozenset({"enum", "literal_error"})
"""Error types of a word that is not among those that there are; no secret is written there."""


def explain_validation_error(error: ValidationError) -> Iterator[str]:
    """Yield what is wrong with each setting, once."""
    told: set[str] = set()
    for problem in error.errors(include_url=False, include_context=False):
        place = [str(part).replace("_", "-") for part in problem["loc"]]
        if place[0] == "kafka" and len(place) > 1:
            said = f"kafka.{place[1]}: write text, a number, or true or false"
        else:
            said = _explain_problem(place, problem["type"], problem["msg"], problem["input"])
        if said not in told:
            yield said
        told.add(said)


def _explain_problem(place: list[str], kind: str, message: str, given: object) -> str:
    name = ".".join(place)
    if kind == "missing":
        every = f"; every sidecar needs it (--{name})" if len(place) == 1 else ""
        return f"{name} is missing{every}"
    example = SETTING_EXAMPLES.get(place[0])
    if example is not None and (len(place) == 1 or kind in SHAPE_ERROR_TYPES):
        return f"{name}: write {example}"
    wanted = TYPE_DESCRIPTIONS.get(kind.partition("_")[0])
    if wanted is not None:
        return f"{name}: write {wanted}"
    told = (
        f"{given!r} is none of them; "
        if kind in CHOICE_ERROR_TYPES and isinstance(given, str)
        else ""
    )
    return f"{name}: {told}{message[:1].lower()}{message[1:]}".replace("input should be", "write")
