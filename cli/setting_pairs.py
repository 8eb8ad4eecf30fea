"""Lists on the command line: `--set`, `--kafka` and `--shape` name=value, and names of heuristics."""

from collections.abc import Sequence
from typing import Any, Final

import yaml

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import reject_secret_argument

_PAIR_EXAMPLES: Final = {"--kafka": "security.protocol=SSL", "--set": "scale-up-policies=2"}


def parse_pairs(flag: str, pairs: Sequence[str] | None, example: str = "") -> dict[str, Any]:
    """Return name=value pairs, values read as YAML. Raises SettingError."""
    parsed: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not (name := name.strip()):
            # without the text: it may be a secret that was given without its name
            example = example or _PAIR_EXAMPLES.get(flag, "name=1")
            raise SettingError(f'{flag} needs name=value, like "{example}"')
        reject_secret_argument(flag, name, value)
        try:
            parsed[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SettingError(f"{flag} {name}: the value is not YAML") from None  # its text shows the value
    return parsed


def format_pairs(pairs: Sequence[str] | None) -> tuple[str, ...]:
    """Return pairs that `parse_pairs` accepts as lines of YAML, the last one of each name."""
    values = {name.strip(): value.strip() for name, _, value in (p.partition("=") for p in pairs or ())}
    return tuple(f"{name}: {value}" for name, value in values.items())


def split_names(given: Sequence[str] | None) -> list[str]:
    """Return comma-separated names. Raises SettingError for an empty one."""
    names = [name.strip() for text in given or () for name in text.split(",")]
    if "" in names:
        raise SettingError("a name in a list of heuristics is empty; leave out the comma")
    return names
