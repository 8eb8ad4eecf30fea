"""Secrets come from files or the environment: `${file:/run/secrets/password}`, `${env:PASSWORD}`.

A reference may stand anywhere in a text of a configuration, also inside lists and mappings. It is
replaced when the configuration is read; a file that changes later is not read again. One newline at
the end of a file is not part of the secret. Errors name the setting and the reference, never what
it stands for; whoever checks what was read does so within `mask_secrets_in_errors`.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from trimtab.common.errors import SettingError

SECRET_REFERENCE: Final = re.compile(r"\$\{(env|file):([^{}]+)\}")
_SECRET_NAME: Final = re.compile(
    r"password|secret|user[.]info|key[.]pem|credential$|token$|sas-token|authorization$"
    r"|account[.]key|sasl[.]oauthbearer[.]config",
    re.IGNORECASE,
)
_LOCATION_NAME: Final = re.compile(r"[.-](file|location|endpoint[.]url)$")


def resolve_secrets(config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return a configuration with every reference replaced. Raises SettingError."""
    return {name: _resolve_value(name, value, environ) for name, value in config.items()}


@contextmanager
def mask_secrets_in_errors(
    config: Mapping[str, Any], environ: Mapping[str, str]
) -> Generator[None]:
    """Let errors of settings that are raised within show references, not what they stand for.

    `config` is what was written, with its references.
    """
    try:
        yield
    except SettingError as error:
        error.args = (_mask_secrets(str(error), config, environ),)
        raise


def is_secret(name: str) -> bool:
    """Tell whether a setting of this name holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _LOCATION_NAME.search(name)


def reject_secret_argument(flag: str, name: str, value: str) -> None:
    """Raise SettingError for a secret on a command line, which every user of a machine can read."""
    if is_secret(name) and SECRET_REFERENCE.sub("", value):
        raise SettingError(
            f"{flag} {name}: a command line can be seen by others; write {name}='${{file:PATH}}' "
            "or '${env:NAME}', or put it into the file of --config"
        )


def _resolve_value(name: str, value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return SECRET_REFERENCE.sub(_make_replacer(name, environ), value)
    if isinstance(value, Mapping):
        return {key: _resolve_value(f"{name}.{key}", each, environ) for key, each in value.items()}
    if isinstance(value, list):
        return [_resolve_value(name, each, environ) for each in value]
    return value


def _iter_reference_texts(value: Any) -> Iterable[str]:
    """Yield the texts of a configuration that hold references."""
    if isinstance(value, str):
        yield from (value,) if SECRET_REFERENCE.search(value) else ()
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _iter_reference_texts(each)


def _mask_secrets(text: str, config: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return a text with what references stand for turned into references again."""
    written: dict[str, str] = {}
    for each in _iter_reference_texts(config):
        for part in (each, *(found[0] for found in SECRET_REFERENCE.finditer(each))):
            with suppress(SettingError):
                written[_resolve_value("", part, environ)] = part
    for stands in sorted(filter(None, written), key=len, reverse=True):
        as_a_word = rf"(?<!\w){re.escape(stands)}(?!\w)"
        text = re.sub(as_a_word, written[stands].replace("\\", r"\\"), text)
    return text


def _make_replacer(name: str, environ: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        kind, where = found.groups()
        if kind == "file":
            return _read_secret_file(name, Path(where))
        if where not in environ:
            raise SettingError(f"{name}: the environment has no {where}; set it, or mend the name")
        return environ[where]

    return replace


def _read_secret_file(name: str, file: Path) -> str:
    try:
        return file.read_text().removesuffix("\n")
    except OSError as error:
        raise SettingError(f"{name}: {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingError(f"{name}: {file} is not text") from None
