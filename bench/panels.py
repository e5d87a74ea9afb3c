"""Draws a Grafana dashboard with matplotlib: its own panels, places, units, thresholds and queries."""

import math
import time
from datetime import UTC, datetime

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.dates as mdates
import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.patches import FancyBboxPatch
from matplotlib.ticker import FuncFormatter

PAGE, PANEL, EDGE, TEXT, DIM, GRID = "#111217", "#181b1f", "#2a2e34", "#d8d9e3", "#8e8f9c", "#2a2e34"
LINES = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#ffa6b0")
NAMED = {"green": "#56a64b", "orange": "#e0752d", "red": "#c4162a", "blue": "#3274d9"}
HEAT = LinearSegmentedColormap.from_list("heat", ["#1d2b53", "#3274d9", "#37a2a8", "#73bf69", "#f2cc0c", "#ff7f0e"])
CELL_WIDTH, CELL_HEIGHT, GAP = 60.0, 34.0, 8.0  # pixels


def draw(board, prometheus, seconds, target):
    """Ask every query of the board over the last `seconds`, and write the picture."""
    mpl.rcParams.update({
        "font.family": "DejaVu Sans", "text.color": TEXT, "axes.labelcolor": DIM, "xtick.color": DIM,
        "ytick.color": DIM, "axes.edgecolor": EDGE, "font.size": 8,
    })
    until = time.time()
    source = Source(prometheus, until - seconds, until)
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    width, height = 24 * CELL_WIDTH, rows * CELL_HEIGHT + 46
    figure = plt.figure(figsize=(width / 100, height / 100), dpi=100, facecolor=PAGE)
    figure.text(14 / width, 1 - 27 / height, board["title"], fontsize=14, fontweight="bold", color=TEXT)
    span = f"{round(seconds / 60)} minutes of a real run: 1 consumer, 2 producers"
    figure.text(1 - 14 / width, 1 - 27 / height, span, fontsize=9, color=DIM, ha="right")
    for panel in board["panels"]:
        place = panel["gridPos"]
        x, w = place["x"] * CELL_WIDTH, place["w"] * CELL_WIDTH
        y, h = height - 46 - (place["y"] + place["h"]) * CELL_HEIGHT, place["h"] * CELL_HEIGHT
        box = Box(figure, (width, height), (x + GAP / 2, y + GAP / 2, w - GAP, h - GAP))
        {"stat": stat, "timeseries": lines, "heatmap": heat, "row": heading}[panel["type"]](box, panel, source)
    figure.savefig(target, facecolor=PAGE)
    plt.close(figure)


class Source:
    """A time range of a Prometheus, with Grafana's variables filled in."""

    def __init__(self, prometheus, since, until):
        self._prometheus = prometheus
        self.since, self.until = since, until

    def ask(self, expression, window, step=1.0):
        span = f"{round(self.until - self.since)}s"
        filled = expression.replace("$__rate_interval", window).replace("$__range", span)
        return self._prometheus.query_range(filled.replace("$instance", ".+"), self.since, self.until, step)


class Box:
    """A panel's place on the page, in pixels."""

    def __init__(self, figure, page, place):
        self.figure, self.page, self.place = figure, page, place

    def frame(self, fill):
        x, y, w, h = (side / self.page[index % 2] for index, side in enumerate(self.place))
        rounding = 4 / self.page[0]
        shape = FancyBboxPatch(
            (x + rounding, y + rounding), w - 2 * rounding, h - 2 * rounding, transform=self.figure.transFigure,
            boxstyle=f"round,pad={rounding}", facecolor=fill, edgecolor=EDGE, linewidth=0.8, zorder=-1,
            mutation_aspect=self.page[0] / self.page[1],
        )
        self.figure.add_artist(shape)

    def write(self, across, down, text, **style):
        """Write at so many pixels from the left and from the top."""
        x, y, _, h = self.place
        self.figure.text((x + across) / self.page[0], (y + h - down) / self.page[1], text, **style)

    def axes(self, left=48, bottom=40, right=12, top=30):
        x, y, w, h = self.place
        area = ((x + left) / self.page[0], (y + bottom) / self.page[1], (w - left - right) / self.page[0],
                (h - bottom - top) / self.page[1])
        axes = self.figure.add_axes(area, facecolor="none")
        axes.grid(visible=True, color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, labelsize=7.5)
        for side in axes.spines.values():
            side.set_visible(False)
        axes.xaxis.set_major_formatter(mdates.DateFormatter("%H:%M:%S", tz=UTC))
        axes.xaxis.set_major_locator(mdates.AutoDateLocator(minticks=3, maxticks=6))
        return axes


def heading(box, panel, _):
    box.write(4, 22, f"▾ {panel['title']}", fontsize=10, color=TEXT, fontweight="bold")


def stat(box, panel, source):
    [series] = source.ask(panel["targets"][0]["expr"], "10s")[:1] or [{"values": []}]
    values = [float(value) for _, value in series["values"]]
    last = next((value for value in reversed(values) if not math.isnan(value)), None)
    defaults = panel["fieldConfig"]["defaults"]
    colour = NAMED["blue"]
    for step in defaults.get("thresholds", {}).get("steps", ()):
        if step["value"] is None or (last is not None and last >= step["value"]):
            colour = NAMED[step["color"]]
    box.frame(colour)
    box.write(12, 22, panel["title"], fontsize=9.5, color="white", alpha=0.9)
    _, _, w, h = box.place
    text = written(last, defaults["unit"], defaults.get("decimals"))
    box.write(w / 2, h / 2 + 16, text, fontsize=25, color="white", fontweight="bold", ha="center", va="center")
    if len(set(values)) > 1:
        axes = box.axes(left=0, right=0, bottom=0, top=h - 34)
        axes.axis("off")
        axes.fill_between(range(len(values)), values, min(values) - 1e-9, color="white", alpha=0.22, linewidth=0)


def lines(box, panel, source):
    box.frame(PANEL)
    box.write(12, 20, panel["title"], fontsize=9.5, color=TEXT, fontweight="bold")
    axes = box.axes()
    defaults = panel["fieldConfig"]["defaults"]
    style = defaults["custom"]
    found = [(target, series) for target in panel["targets"] for series in source.ask(target["expr"], "5s")]
    drawn = [(legend(target, series), *points(series)) for target, series in found]
    if "stacking" in style:
        axes.stackplot(drawn[0][1], *(y for _, _, y in drawn), colors=LINES, alpha=0.75, linewidth=0)
    else:
        for index, (_, x, y) in enumerate(drawn):
            axes.plot(x, y, color=LINES[index], linewidth=1.4)
            if style["fillOpacity"]:
                axes.fill_between(x, y, color=LINES[index], alpha=style["fillOpacity"] / 100, linewidth=0)
    if "scaleDistribution" in style:
        axes.set_yscale("log")
    else:
        low, high = axes.get_ylim()
        low = min(low, 0.95) if defaults["unit"] == "percentunit" else min(0, low)
        axes.set_ylim(defaults.get("min", low), defaults.get("max", max(high, 1e-9)) * 1.01)
    for step in defaults.get("thresholds", {}).get("steps", ())[1:]:
        axes.axhline(step["value"], color="#f2495c", linewidth=1, linestyle=(0, (5, 4)), alpha=0.8)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value, defaults["unit"], None)))
    axes.set_xlim(*(datetime.fromtimestamp(at, UTC) for at in (source.since, source.until)))
    across = 14.0
    for index, (name, _, _) in enumerate(drawn):
        box.write(across, box.place[3] - 12, "━", fontsize=9, color=LINES[index], fontweight="bold")
        box.write(across + 14, box.place[3] - 12, name, fontsize=8, color=TEXT)
        across += 30 + 6.2 * len(name)


def heat(box, panel, source):
    box.frame(PANEL)
    box.write(12, 20, panel["title"], fontsize=9.5, color=TEXT, fontweight="bold")
    axes = box.axes(bottom=26)
    axes.grid(visible=False)
    step = 2.0
    answer = source.ask(panel["targets"][0]["expr"], "4s", step)
    found = {float(each["metric"]["le"]): dict(each["values"]) for each in answer}
    bounds = sorted(found)
    times = sorted({at for values in found.values() for at in values})
    sums = [[float(found[bound].get(at, 0)) for at in times] for bound in bounds]
    counts = [[max(0.0, new - old) for new, old in zip(row, before, strict=True)]
              for row, before in zip(sums, [[0.0] * len(times), *sums], strict=False)]
    used = [index for index, row in enumerate(counts) if max(row) > 0.5]
    shown = range(max(0, used[0] - 1), used[-1] + 1)
    cells = [[value if value > 0.5 else math.nan for value in counts[index]] for index in shown]
    edges = [datetime.fromtimestamp(at, UTC) for at in [*times, times[-1] + step]]
    axes.pcolormesh(edges, range(len(cells) + 1), cells, cmap=HEAT, norm=LogNorm(1, 2000), edgecolor=PANEL, linewidth=0.6)
    axes.set_yticks([index + 1 for index in range(len(cells))], [written(bounds[index], "s", None) for index in shown])
    axes.set_xlim(*(datetime.fromtimestamp(at, UTC) for at in (source.since, source.until)))


def points(series):
    x = [datetime.fromtimestamp(at, UTC) for at, _ in series["values"]]
    return x, [float(value) for _, value in series["values"]]


def legend(target, series):
    text = target["legendFormat"]
    for name, value in series["metric"].items():
        text = text.replace("{{" + name + "}}", value)
    return text


def written(value, unit, decimals):
    """Write a number as Grafana would."""
    if value is None or math.isnan(value) or math.isinf(value):
        return "∞" if value is not None and math.isinf(value) else "no data"
    if unit == "percentunit":
        return f"{value:.{decimals if decimals is not None else 0}%}"
    if unit == "s":
        if value < 1:
            return f"{value * 1000:.3g} ms" if value else "0 s"
        return f"{value:.3g} s" if value < 60 else f"{value / 60:.3g} min" if value < 3600 else f"{value / 3600:.3g} h"
    text = f"{value / 1000:.3g} K" if value >= 1000 else f"{value:.0f}" if decimals == 0 else f"{value:.3g}"
    return f"{text}/s" if unit == "ops" else text
