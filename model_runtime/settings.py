"""Which model is served and how it is spread; the rest is read from the checkpoint."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class ModelSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(
        "", description="A GGUF file or a folder of safetensors; empty takes the fetched SmolLM2-135M-Instruct."
    )
    shards: int = Field(2, ge=1, le=1024, description="Shard actors the model is spread over, one device each.")
    upcycle: bool = Field(True, description="Turn a dense checkpoint into 8 experts, top-2, with the same output.")
    placement: Literal["PACK", "STRICT_PACK", "SPREAD"] = Field(
        "PACK", description="Where the shards go: on few nodes, on one node or nowhere, or on many nodes."
    )
    quantize: Literal["none", "int8", "int4"] = Field(
        "none", description="Weight-only quantisation at load; less memory, a little less exact (docs/performance.md)."
    )
    boosts_file: str = Field("", description="JSON rules that make experts likelier for some prompts; empty for none.")
    upstream_url: str = Field("", description="An OpenAI-compatible server that generates instead of the shards.")
    upstream_model: str = Field("", description="The model to ask it for; empty takes the first it lists.")
    upstream_api_key_file: str = Field("", description="A file with the key for it; empty sends none.")
    upstream_context_tokens: int = Field(8192, ge=256, description="The context of the upstream's model.")
