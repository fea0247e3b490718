"""Which parameters a layer of model.Model has, and what is stacked into each by rows."""

from model_runtime.families import ModelConfig

Shapes = dict[str, list[tuple[int, ...]]]  # parameter, without "layers.N." -> the shapes of what is stacked into it


def layer_shapes(config: ModelConfig, layer: int) -> Shapes:
    """All but the router and the experts it chooses from."""
    hidden, queries, keys = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    shapes: Shapes = {
        "attention_norm.weight": [(hidden,)],
        "ffn_norm.weight": [(hidden,)],
        "attention.qkv.weight": [(queries, hidden), (keys, hidden), (keys, hidden)],
        "attention.out.weight": [(hidden, queries)],
    }
    if config.post_norms:
        shapes |= {"attention_post_norm.weight": [(hidden,)], "ffn_post_norm.weight": [(hidden,)]}
    if config.qkv_bias:
        shapes["attention.qkv.bias"] = [(queries,), (keys,), (keys,)]
    if config.out_bias:
        shapes["attention.out.bias"] = [(hidden,)]
    if config.qk_norm != "none":
        widths = (config.head_dim, config.head_dim) if config.qk_norm == "head" else (queries, keys)
        shapes |= {"attention.query_norm.weight": [widths[:1]], "attention.key_norm.weight": [widths[1:]]}
    if config.sinks:
        shapes["attention.sinks"] = [(config.heads,)]
    if not config.has_experts(layer):
        shapes |= {f"ffn.{name}.weight": [shape] for name, shape in ffn_shapes(config.ffn, hidden).items()}
    elif config.shared_ffn:
        shared = ffn_shapes(config.shared_ffn, hidden)
        shapes |= {f"ffn.shared.{name}.weight": [shape] for name, shape in shared.items()}
        shapes["ffn.shared_gate.weight"] = [(1, hidden)]
    return shapes


def ffn_shapes(inner: int, hidden: int) -> dict[str, tuple[int, int]]:
    return {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
