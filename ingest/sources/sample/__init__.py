"""The bundled sample feed: invented posts about invented places, written by a deterministic generator.

Everything here is made up: people, towns, companies, and every contact detail comes from ranges reserved for fiction.
Knows no clock and no network; whoever replays it shifts the times (`NOW` is the moment that becomes the present).
"""

from ingest.sources.sample.records import post_stories, sample_records
from ingest.sources.sample.stories import Question, Story, off_topic_questions, stories
from ingest.sources.sample.timeline import NOW
from ingest.sources.sample.traps import Planted, orders, planted_pii

__all__ = [
    "NOW",
    "Planted",
    "Question",
    "Story",
    "off_topic_questions",
    "orders",
    "planted_pii",
    "post_stories",
    "sample_records",
    "stories",
]
