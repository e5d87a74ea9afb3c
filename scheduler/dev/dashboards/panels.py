"""The few kinds of panel that the dashboards are made of."""

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


def stat(title: str, expression: str, about: str, *, unit: str, steps: Sequence[Any], **more: Any) -> Json:
    """Return a big number that is coloured by thresholds: value, colour, value, colour …, from below."""
    options = {
        "colorMode": "background",
        "graphMode": "area",
        "reduceOptions": {"calcs": ["lastNotNull"]},
        "textMode": "value",
    }
    return _panel(
        "stat", title, [query(expression)], about, defaults=_defaults(unit, steps, more), options=options
    )


def graph(title: str, queries: Sequence[Json], about: str, *, unit: str, **more: Any) -> Json:
    """Return lines over time."""
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
    return _panel("timeseries", title, queries, about, defaults=defaults, options=options)


def heatmap(title: str, expression: str, about: str) -> Json:
    """Return a heat map of a histogram of seconds."""
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
        about,
        defaults={"unit": "s"},
        options=options,
    )


def table(title: str, queries: Sequence[Json], about: str, *, hidden: Sequence[str] = ()) -> Json:
    """Return a table with a row for each set of labels."""
    tidy = {"id": "organize", "options": {"excludeByName": dict.fromkeys(("Time", *hidden), True)}}
    for each in queries:
        each["format"] = "table"
    merged = _panel("table", title, queries, about, defaults={}, options={"showHeader": True})
    return merged | {"transformations": [{"id": "merge", "options": {}}, tidy]}


def row(title: str) -> Json:
    """Return a heading."""
    return {"type": "row", "title": title, "collapsed": False, "panels": []}


def _panel(kind: str, title: str, queries: Sequence[Json], about: str, *, defaults: Json, options: Json) -> Json:
    targets = [each | {"refId": chr(ord("A") + index)} for index, each in enumerate(queries)]
    return {
        "type": kind,
        "title": title,
        "description": about,
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
    """Place panels line by line; a line is a height and the panels that share its width evenly."""
    placed: list[Json] = []
    y = 0
    for height, panels in lines:
        width = WIDTH // len(panels)
        for index, panel in enumerate(panels):
            place = {"x": index * width, "y": y, "w": width, "h": height}
            placed.append({"id": len(placed) + 1, "gridPos": place, **panel})
        y += height
    return placed


def dashboard(uid: str, title: str, about: str, lines: Sequence[tuple[int, Sequence[Json]]], other: Json) -> Json:
    """Return a whole dashboard, with the variables, annotations and links that ours have in common."""
    return {
        "uid": uid,
        "title": title,
        "description": about,
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
    """Return a link to another dashboard that keeps the time range and the chosen instances."""
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
    # The value of the series is the moment itself: one mark for each start, of new replicas too.
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
    "tooltip": "docs/operating.md: what each alert means and what to do",
}
