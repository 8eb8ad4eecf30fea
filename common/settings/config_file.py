"""Configuration files: one flat YAML mapping from names to values.

A relative path in a file is relative to the file's folder, so that commands of different working
folders mean the same place.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import yaml

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import resolve_secrets
from trimtab.common.tls import SYSTEM_CA

# a test compares them with the settings models
PATH_SETTINGS: Final = frozenset(
    {
        "grpc-client-ca",
        "grpc-tls-certificate",
        "grpc-tls-key",
        "https.ca.location",
        "kubeconfig",
        "lake.warehouse",
        "prometheus-token-file",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.crl.location",
        "ssl.key.location",
        "state-dir",
        "tls-certificate",
        "tls-key",
        "token-file",
        "trimtab.metrics.tls.certificate",
        "trimtab.metrics.tls.key",
        "trimtab.metrics.token.file",
        "worker-config",
    }
)
"""Settings whose value is a path of a file or folder."""
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_FILE_REFERENCE: Final = re.compile(r"(?<=\$\{file:)[^{}]+(?=\})")  # of kafka_security.secrets


class _ConfigLoader(yaml.SafeLoader):
    """Refuses aliases of lists: one may hold itself, or some kilobytes stand for 10**60 values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            name = cast("Any", self).peek_event().anchor  # untyped
            if not isinstance(self.anchors.get(name), yaml.ScalarNode):
                raise _AliasError(f"*{name} is no single value; write out lists and mappings")
        return super().compose_node(parent, index)


class _AliasError(Exception):
    """An alias of something else than a single value."""


def load_config_file(path: Path) -> dict[str, Any]:
    """Read a flat YAML mapping with secrets resolved. Raises SettingError."""
    return resolve_secrets(read_config_file(path), os.environ)


def read_config_file(path: Path) -> dict[str, Any]:
    """Read a flat YAML mapping; {} for an empty file. Raises SettingError.

    Secret references are unresolved; relative paths are made absolute.
    """
    try:
        # safe: a SafeLoader; the linter knows yaml's own only
        content = yaml.load(path.read_text(encoding="utf-8"), _ConfigLoader)  # noqa: S506
    except OSError as error:
        raise SettingError(f"the configuration {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # also no UTF-8, a 31 June, "[[[[..."
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        # without YAML's own message, which quotes the line: it may hold a secret
        raise SettingError(f"the configuration {path} is not YAML{line}") from None
    except _AliasError as error:
        raise SettingError(f"the configuration {path}: {error}") from None
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise SettingError(f'the configuration {path} must be one flat mapping, like "group.id: lake"')
    # a pipe, like /dev/stdin, has no folder of its own
    folder = path.absolute().parent if path.is_file() else Path.cwd()
    return {str(key): _resolve_paths(str(key), value, folder) for key, value in content.items()}


def _resolve_paths(name: str, value: Any, folder: Path) -> Any:
    """Return a value with its relative paths resolved, also in lists and mappings."""
    if isinstance(value, Mapping):
        return {key: _resolve_paths(str(key), each, folder) for key, each in value.items()}
    if isinstance(value, list):
        return [_resolve_paths(name, each, folder) for each in value]
    if not isinstance(value, str):
        return value
    value = _FILE_REFERENCE.sub(lambda found: _resolve_path(found[0], folder), value)
    return _resolve_path(value, folder) if name in PATH_SETTINGS and value != SYSTEM_CA else value


def _resolve_path(path: str, folder: Path) -> str:
    """Return a relative path as that in a folder; URIs, references and other paths as they are."""
    if not path or _URI.match(path) or path.startswith(("~", "${")) or Path(path).is_absolute():
        return path
    return str(folder / path)
