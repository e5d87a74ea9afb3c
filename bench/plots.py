"""The two pictures that belong in the README."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

DOCS = Path(__file__).parent.parent / "docs"


def throughput(rate: dict[str, float]) -> None:
    """Draw events a second by replicas, beside the yardsticks."""
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
    """Draw the share of events that a host had received by so many milliseconds after their due_at."""
    figure, axes = plt.subplots(figsize=(7, 3.6), dpi=120)
    for (name, late), colour in zip(samples.items(), ["#2a6f97", "#61a5c2", "#c1121f"], strict=True):
        ordered = sorted(max(value, 0.1) for value in late)
        axes.step(ordered, [100 * (n + 1) / len(ordered) for n in range(len(ordered))], label=name, color=colour)
    axes.set_xscale("log")
    axes.set_xlabel("milliseconds after due_at, until a host has the event")
    axes.set_ylabel("% of events")
    axes.set_title("Lag with 1 million other jobs pending, 2 replicas", fontsize=10)
    axes.grid(alpha=0.3, which="both", linewidth=0.4)
    axes.legend(loc="lower right", fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(DOCS / "lag.png")
    plt.close(figure)
