"""Conditions as data -> a Qdrant server's filters."""

from collections.abc import Iterable
from typing import Any

from qdrant_client import models

from ingest.index_points import Condition

NEVER = models.Filter(must=[models.HasIdCondition(has_id=[])])  # of an upsert: only what is not there yet is written


def where(conditions: Iterable[Condition]) -> models.Filter:
    """All of them hold."""
    must: list[Any] = []
    must_not: list[Any] = []
    for condition in conditions:
        (must_not if condition.is_not else must).append(_one(condition))
    return models.Filter(must=must, must_not=must_not)


def among(ids: Iterable[str], conditions: Iterable[Condition] = ()) -> models.Filter:
    """These points, as far as the conditions hold."""
    some = where(conditions)
    return models.Filter(must=[models.HasIdCondition(has_id=list(ids)), some])


def not_newer(version_us: int) -> models.Filter:
    """What a version of a post may be written over: an older one or itself, and what was removed before it."""
    known = models.FieldCondition(key="version_us", range=models.Range(lte=version_us))
    older = models.FieldCondition(key="version_us", range=models.Range(lt=version_us))
    removed = models.FieldCondition(key="pieces", match=models.MatchValue(value=0))
    return models.Filter(should=[models.Filter(must=[known], must_not=[removed]), older])


def _one(condition: Condition) -> Any:
    if condition.ids:
        return models.Filter(should=[_field(condition), models.HasIdCondition(has_id=list(condition.ids))])
    return _field(condition)


def _field(condition: Condition) -> models.FieldCondition:
    key, values = condition.key, list(condition.values)
    if len(values) == 1:
        return models.FieldCondition(key=key, match=models.MatchValue(value=values[0]))
    if values:
        return models.FieldCondition(key=key, match=models.MatchAny(any=values))
    return models.FieldCondition(key=key, range=models.Range(gte=condition.gte, lte=condition.lte))
