"""Panel types of the dashboards."""

from collections.abc import Sequence
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24
GREEN, AMBER, RED, BLUE = "green", "orange", "red", "blue"
Json = dict[str, Any]


def query(expression: str, legend: str = "", *, instant: bool = False, heatmap: bool = False) -> Json:
    """Return one query of a panel."""
    kind = {"instant": True, "range": False} if instant else {"instant": False, "range": True}
    shape = {"format": "heatmap"} if heatmap else {}
    return {"datasource": SOURCE, "expr": expression, "legendFormat": legend or "__auto", **kind, **shape}


def stat(title: str, expression: str, description: str, *, unit: str, steps: Sequence[Any], **more: Any) -> Json:
    """Return a number panel, coloured by thresholds in ascending order: colour, value, colour, value …"""
    options = {
        "colorMode": "background",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "textMode": "value",
    }
    return _panel(
        "stat", title, [query(expression)], description, defaults=_defaults(unit, steps, more), options=options
    )


def graph(title: str, queries: Sequence[Json], description: str, *, unit: str, **more: Any) -> Json:
    """Return a time series panel."""
    style = {"lineWidth": 2, "fillOpacity": more.pop("fill", 8), "showPoints": "never", "spanNulls": 60000}
    if more.pop("stack", False):
        style |= {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    if more.pop("log", False):
        style["scaleDistribution"] = {"type": "log", "log": 10}
    steps = more.pop("steps", ())
    if steps:
        style["thresholdsStyle"] = {"mode": "dashed"}
    options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    defaults = _defaults(unit, steps, more) | {"custom": style}
    return _panel("timeseries", title, queries, description, defaults=defaults, options=options)


def heatmap(title: str, expression: str, description: str) -> Json:
    """Return a heat map panel for a histogram of seconds."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "yAxis": {"unit": "s"},
        "rowsFrame": {"layout": "le"},
        "color": {"mode": "scheme", "scheme": "Spectral", "scale": "exponential", "exponent": 0.5, "steps": 64},
        "tooltip": {"mode": "single", "yHistogram": True},
    }
    return _panel(
        "heatmap",
        title,
        [query(expression, "{{le}}", heatmap=True)],
        description,
        defaults={"unit": "s"},
        options=options,
    )


def table(title: str, queries: Sequence[Json], description: str, *, hidden: Sequence[str] = ()) -> Json:
    """Return a table panel with one row per label set."""
    tidy = {"id": "organize", "options": {"excludeByName": dict.fromkeys(("Time", *hidden), True)}}
    for target in queries:
        target["format"] = "table"
    merged = _panel("table", title, queries, description, defaults={}, options={"showHeader": True})
    return merged | {"transformations": [{"id": "merge", "options": {}}, tidy]}


def row(title: str) -> Json:
    """Return a row heading."""
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def _panel(
    kind: str, title: str, queries: Sequence[Json], description: str, *, defaults: Json, options: Json
) -> Json:
    targets = [target | {"refId": chr(ord("A") + index)} for index, target in enumerate(queries)]
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def _defaults(unit: str, steps: Sequence[Any], more: Json) -> Json:
    defaults: Json = {"unit": unit, **more}
    if steps:
        values = [None, *steps[1::2]]
        marks = [{"color": colour, "value": value} for colour, value in zip(steps[::2], values, strict=False)]
        defaults["thresholds"] = {"mode": "absolute", "steps": marks}
    return defaults


def lay_out(lines: Sequence[tuple[int, Sequence[Json]]]) -> list[Json]:
    """Place panels line by line. A line is a height and the panels that share its width evenly."""
    placed: list[Json] = []
    y = 0
    for height, panels in lines:
        width = WIDTH // len(panels)
        for index, panel in enumerate(panels):
            position = {"x": index * width, "y": y, "w": width, "h": height}
            placed.append({"id": len(placed) + 1, "gridPos": position, **panel})
        y += height
    return placed


def dashboard(
    uid: str, title: str, description: str, lines: Sequence[tuple[int, Sequence[Json]]], other: Json
) -> Json:
    """Return a dashboard with the common variables, annotations and links."""
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["scheduler"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "5s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "fiscalYearStartMonth": 0,
        "version": 1,
        "templating": {"list": [_SOURCE_VARIABLE, _INSTANCE_VARIABLE]},
        "annotations": {"list": [_RESTARTS]},
        "links": [other, _OPERATING],
        "panels": lay_out(lines),
    }


def link_to(uid: str, title: str) -> Json:
    """Return a link to another dashboard that keeps the time range and the selected instances."""
    return {
        "title": title,
        "type": "link",
        "icon": "dashboard",
        "url": f"/d/{uid}",
        "keepTime": True,
        "includeVars": True,
        "targetBlank": False,
    }


_SOURCE_VARIABLE = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "hide": 2,
    "current": {"text": "Prometheus", "value": "scheduler-prometheus"},
}
_INSTANCE_VARIABLE = {
    "name": "instance",
    "label": "Instance",
    "type": "query",
    "datasource": SOURCE,
    "refresh": 2,
    "sort": 1,
    "query": {"query": "label_values(scheduler_build_info, instance)", "refId": "instances"},
    "multi": True,
    "includeAll": True,
    "allValue": ".+",
    "current": {"text": "All", "value": "$__all"},
}
_RESTARTS = {
    # The value of the series is the start time: one mark per start, also for new replicas.
    "name": "Restarts",
    "enable": True,
    "iconColor": "purple",
    "datasource": SOURCE,
    "useValueForTime": True,
    "expr": 'process_start_time_seconds{job=~"scheduler-.+", instance=~"$instance"} * 1000',
    "step": "15s",
    "titleFormat": "{{job}} started",
    "textFormat": "{{instance}}",
}
_OPERATING = {
    "title": "Operating",
    "type": "link",
    "icon": "doc",
    "targetBlank": True,
    "url": "/public/scheduler/operating.md",
    "tooltip": "docs/operating.md: a runbook for each alert",
}
