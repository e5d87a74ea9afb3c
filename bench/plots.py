"""Plot the charts in docs/."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"


def throughput(rate: dict[str, float]) -> None:
    """Plot events per second by replicas, with the yardsticks."""
    figure, axes = plt.subplots(figsize=(7, 3.6), dpi=120)
    names = ["1 replica", "2 replicas", "3 replicas", "4 replicas"]
    bars = axes.bar(names, [rate[name] for name in names], color="#2a6f97", width=0.6)
    axes.bar_label(bars, fmt="{:,.0f}", padding=2, fontsize=8)
    axes.axhline(rate["pika publisher"], color="#c1121f", linestyle="--", linewidth=1)
    axes.text(3.45, rate["pika publisher"], " pika publisher,\n no database", color="#c1121f", fontsize=8,
              va="center")
    axes.axhline(rate["plain loop"], color="#6c757d", linestyle=":", linewidth=1)
    axes.text(3.45, rate["plain loop"], " plain loop", color="#6c757d", fontsize=8, va="center")
    axes.set_ylabel("confirmed events / s")
    axes.set_title("Due one-shot jobs, 2 shared cores, quorum queue, fsync on", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(-0.5, 4.6)
    figure.tight_layout()
    figure.savefig(DOCS / "throughput.png")
    plt.close(figure)


def lag(samples: dict[str, list[float]]) -> None:
    """Plot the share of events that a host had received within some milliseconds of their due_at."""
    figure, axes = plt.subplots(figsize=(7, 3.6), dpi=120)
    for (name, late), colour in zip(samples.items(), ["#2a6f97", "#61a5c2", "#c1121f"], strict=True):
        ordered = sorted(max(value, 0.1) for value in late)
        axes.step(ordered, [100 * (n + 1) / len(ordered) for n in range(len(ordered))], label=name, color=colour)
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds from due_at to receipt by a host")
    axes.set_ylabel("% of events")
    axes.set_title("Lag with 1 million other jobs pending, 2 replicas", fontsize=10)
    axes.grid(alpha=0.3, which="both", linewidth=0.4)
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(DOCS / "lag.png")
    plt.close(figure)


def scale(parts: Sequence[dict[str, Any]]) -> None:
    """Plot each cost by size, relative to the smallest size."""
    kinds = list(dict.fromkeys(kind for part in parts for kind in part))
    figure, grid = plt.subplots(2, 2, figsize=(14, 8), dpi=100)
    for axes, kind in zip(grid.flat, kinds, strict=False):
        names = list(dict.fromkeys(what for part in parts for what in part.get(kind, {})))
        sizes: set[int] = set()
        for name, colour in zip(names, plt.cm.tab20.colors, strict=False):
            grown: dict[int, float] = {}
            for part in parts:
                costs = {int(size): cost for size, cost in part.get(kind, {}).get(name, {}).items()}
                grown = {size: cost / costs[min(costs)] for size, cost in costs.items()} | grown
            sizes |= grown.keys()
            axes.plot(*zip(*sorted(grown.items()), strict=True), marker="o", markersize=3, label=name, color=colour,
                      linewidth=1.2)
        logarithm = {size: math.log(size) / math.log(min(sizes)) for size in sorted(sizes)}
        axes.plot(*zip(*logarithm.items(), strict=True), color="black", linestyle="--", linewidth=1, label="the logarithm")
        axes.set_xscale("log")
        axes.set_title(kind, fontsize=10)
        axes.set_yscale("log", base=2)
        axes.set_ylim(min(0.5, axes.get_ylim()[0]), max(4.0, axes.get_ylim()[1]))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3, linewidth=0.4)
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axes.spines[["top", "right"]].set_visible(False)
    for axes in grid[:, 0]:
        axes.set_ylabel("cost ÷ cost at the smallest")
    for axes in grid[-1]:
        axes.set_xlabel("rows")
    figure.tight_layout()
    figure.savefig(DOCS / "scale.png")
    plt.close(figure)


def soak(reminders: dict[str, Any], samples: Sequence[dict[str, float]], interval: float) -> None:
    """Plot the lag of reminders, the memory of each process and the dead rows of the tables, by hours."""
    figure, (late, memory, bloat) = plt.subplots(3, 1, figsize=(11, 9), dpi=110, sharex=True)
    at = [(int(number) + 0.5) * interval / 3600 for number in reminders]
    for name in ("p99", "p50"):
        late.plot(at, [figures[name] for figures in reminders.values()], label=name, linewidth=0.8)
    late.set_yscale("log")
    late.set_ylabel("ms from due to the host")
    hours = [sample["at"] / 3600 for sample in samples]
    for axes, prefix in ((memory, "RSS "), (bloat, "dead ")):
        for name in dict.fromkeys(name for sample in samples for name in sample if name.startswith(prefix)):
            axes.plot(hours, [sample.get(name, math.nan) for sample in samples], label=name.removeprefix(prefix), linewidth=1)
    memory.set_ylabel("MiB")
    bloat.set_ylabel("dead rows")
    bloat.set_xlabel("hours; an hour of the shop lasts six minutes")
    for axes in (late, memory, bloat):
        axes.legend(fontsize=7, frameon=False, ncols=6, loc="upper center", bbox_to_anchor=(0.5, 1.12))
        axes.grid(alpha=0.3, linewidth=0.4)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (memory, bloat):
        axes.set_ylim(bottom=0)
    figure.tight_layout()
    figure.savefig(DOCS / "soak.png")
    plt.close(figure)


def day(kinds: dict[str, Any], seen: Sequence[dict[str, float]], interval: float, clock: Callable[[float], float]) -> None:
    """Plot lag by kind and backlog, by the shop's clock."""
    figure, (late, waiting) = plt.subplots(2, 1, figsize=(11, 7), dpi=110, sharex=True)
    for (kind, colour) in zip(("reminder", "delayed", "monitor", "digest", "report"), plt.cm.tab10.colors, strict=False):
        intervals = kinds.get(kind, {}).get("by interval", {})
        at = [clock((int(number) + 0.5) * interval) for number in intervals]
        style = {"linestyle": "none", "marker": "."} if kind in ("digest", "report") else {"linewidth": 1}
        late.plot(at, [figures["p99"] for figures in intervals.values()], color=colour, label=f"{kind}, p99", markersize=5, **style)
        late.plot(at, [figures["p50"] for figures in intervals.values()], color=colour, label=f"{kind}, p50", alpha=0.45, markersize=3,
                  **style)
    late.set_yscale("log")
    late.set_ylabel("ms from due to the host")
    late.legend(fontsize=7, frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.16))
    times = [clock(sample["at"]) for sample in seen]
    for name, label in (("due", "due and not emitted"), ("open runs", "open runs"), ("mainapp_due", "in the host's queue"),
                        ("scheduler_inbox", "queued commands"), ("scheduler_webhooks", "queued webhooks")):
        waiting.plot(times, [sample[name] for sample in seen], label=label, linewidth=1)
    waiting.set_yscale("symlog", linthresh=10)
    waiting.set_ylim(bottom=0)
    waiting.set_ylabel("backlog")
    waiting.set_xlabel("the shop's clock; an hour lasts six real minutes")
    waiting.xaxis.set_major_formatter(lambda hours, _: f"{int(hours):02}:{round(hours % 1 * 60) % 60:02}")
    waiting.legend(fontsize=7, frameon=False, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.1))
    for axes in (late, waiting):
        axes.grid(alpha=0.3, linewidth=0.4)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(DOCS / "day.png")
    plt.close(figure)
