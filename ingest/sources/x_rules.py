"""The rules of the filtered stream, made to be those of the settings. Knows no posts.

https://docs.x.com/x-api/posts/filtered-stream/integrate/build-a-rule
"""

from typing import Any

from ingest.sources.x_api_client import XApi
from ingest.sources.x_backoff import XFault

RULES = "/2/tweets/search/stream/rules"


async def rules_in_force(api: XApi, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Deletes what is not `wanted` and adds what is missing; no `wanted` leaves all as they are.

    Raises XFault, "ended" for a rule that X refuses: no retry will mend it.
    """
    there = _rules(await api.ask(RULES))
    if not wanted:
        return tuple(there)
    surplus = [rule_id for value, rule_id in there.items() if value not in wanted]
    missing = [value for value in wanted if value not in there]
    if surplus:
        await api.ask(RULES, body={"delete": {"ids": surplus}})
    if missing:
        try:
            answer = await api.ask(RULES, body={"add": [{"value": value, "tag": "groundswell"} for value in missing]})
        except XFault as fault:
            if fault.reason.startswith("400"):
                raise XFault("ended", "a rule is refused") from None
            raise
        added = _rules(answer)
        refused = [number for number, value in enumerate(wanted, 1) if value not in there and value not in added]
        if refused and answer.get("errors"):
            raise XFault("ended", f"rule {refused[0]} is refused")
    return wanted


def _rules(answer: dict[str, Any]) -> dict[str, str]:
    """Value -> id."""
    data = answer.get("data")
    rules = [rule for rule in data if isinstance(rule, dict)] if isinstance(data, list) else []
    return {
        rule["value"]: rule["id"]
        for rule in rules
        if isinstance(rule.get("value"), str) and isinstance(rule.get("id"), str)
    }
