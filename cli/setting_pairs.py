"""Settings of the command line as name=value pairs: `--set`, `--kafka`, `--shape`."""

from collections.abc import Sequence
from typing import Any, Final

import yaml

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import reject_secret_argument

_PAIR_EXAMPLES: Final = {"--kafka": "security.protocol=SSL", "--set": "scale-up-policies=2"}


def parse_pairs(flag: str, pairs: Sequence[str] | None, example: str = "") -> dict[str, Any]:
    """Return name=value pairs, values read as YAML. Raises SettingError, without the value."""
    parsed: dict[str, Any] = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            example = example or _PAIR_EXAMPLES.get(flag, "name=1")
            raise SettingError(f'{flag} needs name=value, like "{example}"')
        reject_secret_argument(flag, name.strip(), value)
        try:
            parsed[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise SettingError(f"{flag} {name.strip()}: the value is not YAML") from None
    return parsed
