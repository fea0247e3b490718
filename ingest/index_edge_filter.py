"""Conditions as data -> Edge's filters."""

from collections.abc import Iterable
from typing import Any

import qdrant_edge as edge

from ingest.index_points import Condition


def where(conditions: Iterable[Condition]) -> edge.Filter:
    """All of them hold."""
    must: list[Any] = []
    must_not: list[Any] = []
    for condition in conditions:
        (must_not if condition.is_not else must).append(_one(condition))
    return edge.Filter(must=must, must_not=must_not)


def where_any(conditions: Iterable[Condition]) -> edge.Filter:
    """At least one of them holds."""
    return edge.Filter(should=[where([condition]) for condition in conditions])


def among(ids: Iterable[str]) -> edge.Filter:
    wanted: set[Any] = set(ids)
    return edge.Filter(must=[edge.HasIdCondition(wanted)])


def _one(condition: Condition) -> Any:
    if condition.ids:
        return edge.Filter(should=[_field(condition), edge.HasIdCondition(set(condition.ids))])
    return _field(condition)


def _field(condition: Condition) -> edge.FieldCondition:
    key, values = condition.key, list(condition.values)
    if len(values) == 1:
        return edge.FieldCondition(key, match=edge.MatchValue(values[0]))
    if values:
        return edge.FieldCondition(key, match=edge.MatchAny(values))
    return edge.FieldCondition(key, range=edge.RangeFloat(gte=condition.gte, lte=condition.lte))
