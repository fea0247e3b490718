"""Request fields of the OpenAI API, and of others like it, that are known here and not served."""

from typing import Any

# Fields that are known and cannot be done: these values ask for nothing, any other is refused. Ignoring them instead
# would give the client an answer it did not ask for.
ALLOWED: dict[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, [], ["text"]),
    "audio": (None,),
    "moderation": (None,),
    # Search controls of Perplexity and xAI: an unfiltered answer to a filtered question would be a wrong one.
    "search_parameters": (None,),
    "search_recency_filter": (None,),
    "search_domain_filter": (None, []),
    "search_after_date_filter": (None,),
    "search_before_date_filter": (None,),
    "last_updated_after_filter": (None,),
    "last_updated_before_filter": (None,),
    "disable_search": (None, False),
    "return_related_questions": (None, False),
    "return_images": (None, False),
}

# Known, and without effect on what the answer says.
IGNORED = {
    "user", "safety_identifier", "metadata", "store", "service_tier", "reasoning_effort", "verbosity", "prediction",
    "parallel_tool_calls", "web_search_options", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
}  # fmt: skip
