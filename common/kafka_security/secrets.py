"""Secret references in configurations: `${file:/run/secrets/password}`, `${env:PASSWORD}`.

1. A reference may be part of any text, also inside lists and mappings.
2. It is resolved once, when the configuration is read.
3. Errors show the setting and the reference, never the secret; validate resolved settings within
   `mask_secrets_in_errors`.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from trimtab.common.errors import SettingError

SECRET_REFERENCE: Final = re.compile(r"\$\{(env|file):([^{}]+)\}")
_SECRET_NAME: Final = re.compile(
    r"password|secret|user[.]info|key[.]pem|credential$|token$|sas-token|connection-string|authorization$"
    r"|access[.-]key|(account|private|sse|encryption|decryption|client-provided)[.-]key|azure[.]sas[.]|[.]header[.]|sasl[.]oauthbearer[.]config",
    re.IGNORECASE,
)
_SECRET_IN_VALUE: Final = re.compile(
    r"://[^/@\s]*:[^/@\s]+@|[?&;]password=[^&;\s]|[?&;]sig=[^&;\s]"
    r"|jdbc:oracle:\w{1,20}:(\"[^\"\n]{0,200}\"|[^/@\s\"]{0,200})/[^@\s]+@",
    re.IGNORECASE,
)
# What is kept of a match is in its first group. Lengths are bounded where a search would go on to the end
# of the text at each of its places: Java's stacks are long.
_SECRETS_IN_TEXT: Final = (
    # password="a b", "password": 'x', also as text in JSON (\"password\": \"x\"), up to the same quote;
    # a quote that is not closed was cut off with its end, so all of the line may be the secret
    re.compile(
        r"(password(?:\\*[\"'])?[ \t]*[=:][ \t]*)(\\*[\"'])"
        r"(?:(?!\2)(?:\\\\\\[\"']|\\.|[^\\\n]))*(?:\2|\\?$)",
        re.IGNORECASE | re.MULTILINE,
    ),
    # the rest of a password with a quote, which SQL doubles ('it''s')
    re.compile(r"()\*\*\*(?:'[^'\n]*')+"),
    # a URL's user and password; no "/" in it, which ends the host
    re.compile(r"(://[^/@\s:]*:)[^/\s]+(?=@)"),
    # Oracle's user/password@host; the user may be a proxy's, app[schema], or missing
    re.compile(
        r"(jdbc:oracle:\w{1,20}:(?:\"[^\"\n]{0,200}\"|[^/@\s\"]{0,200})/)"
        r"(?:\"[^\"\n]{0,200}\"|\S{1,2000})(?=@)",
        re.IGNORECASE,
    ),
    # the signature of a shared access token of Azure: in a URL, or the first of a bare token's fields
    re.compile(r"([?&;]sig=|(?<![\w.-])sig=(?=[^&\s]{1,200}&s\w=))[^&;\s\"'<>]+", re.IGNORECASE),
    re.compile(r"(password=)(?!\*\*\*)[^&;\s]+", re.IGNORECASE),
)
# ssl.key.location and sasl.oauthbearer.token.endpoint.url name a place, not a secret
_LOCATION_NAME: Final = re.compile(r"[.-](file|location|endpoint[.]url)$")


def resolve_secrets(config: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return a configuration with all references resolved. Raises SettingError."""
    return {name: _resolve_value(name, value, environ) for name, value in config.items()}


@contextmanager
def mask_secrets_in_errors(config: Mapping[str, Any], environ: Mapping[str, str]) -> Generator[None]:
    """Replace secrets by their references in each SettingError raised within the block.

    `config` is the configuration before `resolve_secrets`.
    """
    try:
        yield
    except SettingError as error:
        # masked here: checks show values, and do not know which of them came from a secret
        error.args = (_mask_secrets(str(error), config, environ),)
        raise


def is_secret(name: str) -> bool:
    """Return whether a setting of this name holds a secret."""
    return bool(_SECRET_NAME.search(name)) and not _LOCATION_NAME.search(name)


def reject_secret_argument(flag: str, name: str, value: str) -> None:
    """Raise SettingError for a secret on a command line."""
    plain = SECRET_REFERENCE.sub("", value)
    if (is_secret(name) and plain) or _SECRET_IN_VALUE.search(plain):
        # every user of the machine can read command lines (ps, /proc)
        raise SettingError(
            f"{flag} {name}: a command line is visible to other users; write "
            f"{name}='${{file:PATH}}' or '${{env:NAME}}', or put it into the file of --config"
        )


def mask_passwords(text: str) -> str:
    """Return a text that others wrote, such as a driver's error with its URL, without its secrets."""
    for secret in _SECRETS_IN_TEXT:
        text = secret.sub(r"\1***", text)
    return text


def _resolve_value(name: str, value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return SECRET_REFERENCE.sub(_reader(name, environ), value)
    if isinstance(value, Mapping):
        return {key: _resolve_value(f"{name}.{key}", each, environ) for key, each in value.items()}
    if isinstance(value, list):
        return [_resolve_value(name, each, environ) for each in value]
    return value


def _iter_references(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield from (value,) if SECRET_REFERENCE.search(value) else ()
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _iter_references(each)


def _mask_secrets(text: str, config: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    references: dict[str, str] = {}
    for each in _iter_references(config):
        for part in (each, *(match[0] for match in SECRET_REFERENCE.finditer(each))):
            with suppress(SettingError):  # a reference that did not resolve left nothing to mask
                references[_resolve_value("", part, environ)] = part
    # longest first: one secret may contain another; whole words: "1" must not mask digits
    for secret in sorted(filter(None, references), key=len, reverse=True):
        whole_word = rf"(?<!\w){re.escape(secret)}(?!\w)"
        text = re.sub(whole_word, references[secret].replace("\\", r"\\"), text)
    return text


def _reader(name: str, environ: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    def read_secret(reference: re.Match[str]) -> str:
        kind, source = reference.groups()
        if kind == "file":
            return _read_secret_file(name, Path(source))
        if source not in environ:
            raise SettingError(f"{name}: the environment has no {source}; set it, or correct the name")
        return environ[source]

    return read_secret


def _read_secret_file(name: str, file: Path) -> str:
    try:
        return file.read_text().removesuffix("\n")  # which editors add; any other is the secret's
    except OSError as error:
        raise SettingError(f"{name}: {file} cannot be read: {error.strerror}") from None
    except ValueError:  # not UTF-8, or a path with NUL; its text shows the bytes
        raise SettingError(f"{name}: {file} is not text") from None
