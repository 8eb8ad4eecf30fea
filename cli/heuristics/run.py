"""`trimtab heuristics`: the names that `trimtab.heuristic` and `--heuristic` take."""

from trimtab.assignor.heuristics.registry import get_heuristic, list_heuristics
from trimtab.cli.heuristics.options import HeuristicsOptions
from trimtab.cli.output_formats import print_table
from trimtab.cli.terminal import print_line
from trimtab.common.errors import TrimtabError

_HEADINGS = ("name", "summary", "presets", "counts", "idempotent")


def heuristics(options: HeuristicsOptions) -> None:
    """Print a table of the heuristics; one that cannot be loaded shows its error."""
    headings = (*_HEADINGS, "source") if options.verbose else _HEADINGS
    rows = [(name, *_describe_heuristic(name))[: len(headings)] for name in list_heuristics()]
    print_table(headings, rows)
    print_line("presets: written name:preset, with settings name:preset:setting=0.5")
    print_line("counts: recommends a replica count, too")
    print_line("idempotent: moves nothing if nothing has changed")


def _describe_heuristic(name: str) -> tuple[str, ...]:
    try:
        heuristic = get_heuristic(name)
    except TrimtabError as error:
        return (str(error),)
    number = ["or a number"] if heuristic.make_tuned else []
    settings = [f"{name}={default:g}" for name, default in heuristic.settings.items()]
    return (
        heuristic.summary,
        ", ".join([*heuristic.presets, *number, *settings]),
        "yes" if heuristic.packs_by_capacity else "no",
        "yes" if heuristic.idempotent else "no",
        heuristic.source,
    )
