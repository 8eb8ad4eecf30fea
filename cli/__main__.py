"""The trimtab command, also as `python -m trimtab.cli`."""

import sys


def run() -> int:
    """Run the command; return its exit code."""
    try:
        from trimtab.cli.main import main  # noqa: PLC0415 - Ctrl-C may arrive while it loads

        return main()
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(run())
