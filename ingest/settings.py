"""Settings of the feed and the index. Composed into services.settings.Settings."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class FeedSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Literal["sample", "none"] | None = Field(
        None, description="What the service publishes; unset is sample with the embedded broker, none with another."
    )
    brokers: str = Field("", description="Kafka bootstrap servers, comma separated; empty starts the embedded broker.")
    topic: str = Field("posts", description="The topic of posts.")
    broker_port: int = Field(9092, ge=1, le=65535, description="The embedded broker's port, on loopback.")
    group: str = Field("groundswell", description="The consumer group.")
    speed: float = Field(1.0, gt=0, le=1000, description="The sample feed's speed; 1 is its own pace.")


class IndexSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    window_h: float = Field(72.0, gt=0, description="Posts older than this are not used as evidence.")
