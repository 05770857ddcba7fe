"""All figures of a report."""

from collections.abc import Collection, Sequence

from matplotlib.figure import Figure

from fedmuon_app.report.budgets import BUDGETS, budgets
from fedmuon_app.report.confusion import CONFUSION, confusions
from fedmuon_app.report.figure import KINDS, Kind, draw, drawable
from fedmuon_app.report.labels import HEAT_MAP, heat_maps
from fedmuon_app.report.runs import Series
from fedmuon_app.report.strip import SERVED, STRIP, served, strip

# each is made by a function of its own
WHOLE = {BUDGETS: budgets, SERVED: served, STRIP: strip, CONFUSION: confusions, HEAT_MAP: heat_maps}
NAMES = tuple(kind.name for kind in (*KINDS, *WHOLE))


def figures(
    experiments: Sequence[Series],
    wanted: Collection[str] | None = None,
    ylim: tuple[float, float] | None = None,
) -> dict[Kind, Figure]:
    """Those that these experiments have numbers for.

    Args:
        experiments: what they are of.
        wanted: their names; None: all.
        ylim: of the accuracies; None: where curves can be told apart.
    """
    drawn = {
        kind: draw(some, kind, ylim=ylim)
        for kind, some in drawable(experiments).items()
        if wanted is None or kind.name in wanted
    }
    for kind, make in WHOLE.items():
        if (wanted is None or kind.name in wanted) and (figure := make(experiments)):
            drawn[kind] = figure
    return drawn
