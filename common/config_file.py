"""Configuration files: one flat YAML mapping from names to values."""

import os
from pathlib import Path
from typing import Any, cast

import yaml

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.secrets import resolve_secrets


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
    """Read a flat YAML mapping with secret references unresolved; {} for an empty file.

    Raises SettingError.
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
    return {str(key): value for key, value in content.items()}
