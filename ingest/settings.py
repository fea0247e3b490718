"""Settings of the feed, its sources, the index and the archive. Composed into services.settings.Settings."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class FeedSettings(BaseModel):
    model_config = _FROZEN

    source: Literal["sample", "none", "bluesky", "mastodon", "x", "rss"] | None = Field(
        None, description="What the service publishes; unset is sample with the embedded broker, none with another."
    )
    brokers: str = Field("", description="Kafka bootstrap servers, comma separated; empty starts the embedded broker.")
    topic: str = Field("posts", description="The topic of posts.")
    broker_port: int = Field(9092, ge=1, le=65535, description="The embedded broker's port, on loopback.")
    group: str = Field("groundswell", description="The consumer group.")
    speed: float = Field(1.0, gt=0, le=1000, description="The sample feed's speed; 1 is its own pace.")


class BlueskySettings(BaseModel):
    model_config = _FROZEN

    url: str = Field(
        "wss://jetstream2.us-east.bsky.network/subscribe",
        description="A Jetstream server; a path that ends in subscribeEvents speaks v2, any other v1.",
    )
    languages: tuple[str, ...] = Field((), description="Keep posts in these languages only; empty keeps all.")


class MastodonSettings(BaseModel):
    model_config = _FROZEN

    url: str = Field("https://mastodon.social", description="The instance.")
    token_file: Path | None = Field(None, description="A file with an access token, which most instances ask for.")
    stream: str = Field("public", description="public, public:local, hashtag:NAME or list:ID.")
    transport: Literal["websocket", "sse"] = Field("websocket", description="How the stream is read.")
    indexable_only: bool = Field(True, description="Skip posts of people who did not opt into search.")


class XSettings(BaseModel):
    model_config = _FROZEN

    url: str = Field("https://api.x.com", description="The API; another for a proxy of your own.")
    token_file: Path | None = Field(None, description="A file with the app's bearer token.")
    rules: tuple[str, ...] = Field((), description="Rules of the filtered stream; empty leaves those that are set.")
    search: bool = Field(False, description="Ask X's recent search when the index has too little fresh on a question.")
    daily_posts: int = Field(1000, ge=0, description="Posts that may be read a day (UTC), stream and search together.")
    daily_usd: float = Field(5.0, ge=0, description="What they may cost a day.")
    usd_per_post: float = Field(0.005, ge=0, description="What one post costs under your plan.")


class RssSettings(BaseModel):
    model_config = _FROZEN

    urls: tuple[str, ...] = Field((), description="Feeds to read, RSS or Atom.")
    every_s: float = Field(300.0, ge=1, description="How often each is asked, unless it asks for less.")


class IndexSettings(BaseModel):
    model_config = _FROZEN

    url: str = Field("", description="A Qdrant server or cluster; empty keeps the index in this process's own folder.")
    api_key_file: Path | None = Field(None, description="A file with its API key.")
    collection: str = Field("groundswell", description="Its collection.")
    shards: int = Field(
        1, ge=1, le=64, description="Owner processes of the embedded index, or shards of a new collection."
    )
    replicas: int = Field(1, ge=1, le=8, description="Copies of each shard of a new collection.")
    window_h: float = Field(
        72.0, gt=0, description="Posts older than this leave the hot tier and are not used unless asked for."
    )
    max_posts: int = Field(200_000, ge=100, description="More posts than this: the oldest leave the hot tier.")
    warm_days: float = Field(30.0, ge=0, description="How long the warm tier keeps posts; 0 has no warm tier.")
    reranker: Path | None = Field(None, description="A folder with a cross-encoder that orders the best matches again.")
    time_zone: str = Field("UTC", description="Whose 'since 9am' is meant when a question does not say.")


class ArchiveSettings(BaseModel):
    model_config = _FROZEN

    url: str = Field(
        "", description="Where posts are kept as Parquet by hour: a folder or any fsspec URL; empty keeps none."
    )
    flush_s: float = Field(60.0, gt=0, description="How long posts wait to be written together.")
