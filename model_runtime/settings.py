"""Two dials; the rest is read from the checkpoint."""

from pydantic import BaseModel, ConfigDict, Field


class ModelSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field("", description="A GGUF file; empty takes the fetched SmolLM2-135M-Instruct.")
    shards: int = Field(2, ge=1, le=1024, description="Shard actors the model is spread over, one device each.")
    upcycle: bool = Field(True, description="Turn a dense checkpoint into 8 experts, top-2, with the same output.")
