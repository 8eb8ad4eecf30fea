"""Checks that the packages of an extra are installed."""

from importlib.util import find_spec

from trimtab.sidecar.errors import StartupError


def require_extra(setting: str, extra: str, *modules: str) -> None:
    """Raise StartupError if a setting's modules are not installed."""
    # find_spec imports nothing: a missing module is reported as the extra that has it
    if any(find_spec(name) is None for name in modules):
        raise StartupError(f"{setting} needs an extra: pip install 'trimtab[{extra}]'")
