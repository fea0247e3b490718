"""Model families as data: what a checkpoint's names mean to the one decoder in model.py. Knows no torch."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes of a decoder as it is held: a shard that holds some of the attention heads has its own `heads` and
    `kv_heads`. `ffn` is the inner width of the dense FFN or of one expert; `num_experts` 0 means dense."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    context_tokens: int
    rms_eps: float
    rope_base: float
    tied_embeddings: bool
    num_experts: int = 0
    active_experts: int = 0
    virtual_groups: int = 1  # the router scores num_experts / virtual_groups copies; a choice takes one of each group
    routed_scaling: float = 1.0


@dataclass(frozen=True, slots=True)
class GgufFamily:
    """How one `general.architecture` of GGUF names a decoder's tensors. `layer` maps a parameter of one layer to the
    tensors ("blk.<i>.<name>.weight") that are stacked into it by rows. Query and key rows must be stored so that a
    rotary pair is adjacent (2i, 2i+1), as llama.cpp's converter leaves them for `llama`: model.py turns such pairs."""

    layer: Mapping[str, tuple[str, ...]]
    embedding: str = "token_embd.weight"
    final_norm: str = "output_norm.weight"
    head: str = "output.weight"  # absent: the embedding is the head


GGUF_FAMILIES: Mapping[str, GgufFamily] = {
    "llama": GgufFamily(
        layer={
            "attention_norm.weight": ("attn_norm",),
            "attention.qkv.weight": ("attn_q", "attn_k", "attn_v"),
            "attention.out.weight": ("attn_output",),
            "ffn_norm.weight": ("ffn_norm",),
            "ffn.gate.weight": ("ffn_gate",),
            "ffn.up.weight": ("ffn_up",),
            "ffn.down.weight": ("ffn_down",),
        }
    ),
}
