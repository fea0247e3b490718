"""The decoder: norms, attention over a paged cache, an FFN or experts, as ModelConfig says. Written for one device."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model_runtime.attention import Attention, Masks, Norm
from model_runtime.families import ModelConfig
from model_runtime.kv_cache import PagedCache, Plan, Step
from model_runtime.linear import GatedFfn, Head
from model_runtime.moe import Moe
from model_runtime.quantize import Mode
from model_runtime.rope import rotary_turns

# T tokens of a step, D hidden, V vocabulary, E experts, A active experts


class Layer(nn.Module):
    def __init__(self, config: ModelConfig, number: int) -> None:
        super().__init__()
        self.attention_norm = Norm(config.hidden, config.rms_eps)
        self.attention = Attention(config, number)
        self.ffn_norm = Norm(config.hidden, config.rms_eps)
        self.ffn = Moe(config) if config.has_experts(number) else GatedFfn(config.hidden, config.ffn, config.activation)
        self.attention_post_norm = self.ffn_post_norm = None
        if config.post_norms:
            self.attention_post_norm = Norm(config.hidden, config.rms_eps)
            self.ffn_post_norm = Norm(config.hidden, config.rms_eps)
        self.residual_scale = config.residual_scale

    def forward(
        self, x: Tensor, turns: Tensor, plan: Plan, masks: Masks, cache: PagedCache, tilt: Tensor | None, guarded: bool
    ) -> Tensor:
        """x [T, D] float32, changed in place."""
        attended = self.attention(self.attention_norm.forward(x, cache.dtype), turns, plan, masks, cache)
        self._add(x, attended, self.attention_post_norm)
        inputs = self.ffn_norm.forward(x, cache.dtype)
        computed = self.ffn(inputs, tilt, guarded) if isinstance(self.ffn, Moe) else self.ffn(inputs)
        self._add(x, computed, self.ffn_post_norm)
        return x

    def pack(self, mode: Mode = "none") -> None:
        """See Linear.pack. The router keeps its precision."""
        self.attention.qkv.pack(mode)
        self.attention.out.pack(mode)
        self.ffn.pack(mode)

    def _add(self, x: Tensor, part: Tensor, post_norm: Norm | None) -> None:
        if post_norm is not None:
            part = post_norm.forward(part.float(), torch.float32)
        x.add_(part, alpha=self.residual_scale)


class Model(nn.Module):
    """Parameters by name, as checkpoints give them (a shard holds a part, see shard.py):

    embedding, head.weight [V, D]; norm.weight [D]; in layers.N: attention_norm, ffn_norm (and attention_post_norm,
    ffn_post_norm) .weight [D]; attention.qkv.weight [(H + 2K) * P, D] with the rows of queries, keys and values,
    attention.out.weight [D, H * P], .bias of both, query_norm.weight, key_norm.weight, sinks [H]; a dense FFN as
    ffn.{gate,up,down}.weight, or ffn.router.score.weight [choices, D], ffn.experts.E.{gate,up,down}.weight, .bias,
    ffn.shared.{gate,up,down}.weight and ffn.shared_gate.weight [1, D].

    After a forward, `routes` has the experts [T, A] that each layer of experts chose, `scores` what its router gave its
    choices [T, C], and after a guarded one `faults` the (layer, expert) pairs whose output was not finite, once a
    token. Call `pack` once, after loading."""

    layers: Sequence[Layer]
    turns: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab, config.hidden), requires_grad=False)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.layers))  # type: ignore[assignment]
        self.norm = Norm(config.hidden, config.rms_eps)
        self.head = Head(config.hidden, config.vocab)
        self.register_buffer("turns", torch.empty(0), persistent=False)
        self.routes: list[Tensor] = []
        self.scores: list[Tensor] = []
        self.faults: list[tuple[int, int]] = []

    @torch.inference_mode()
    def forward(self, step: Step, cache: PagedCache) -> Tensor:
        """[sum of the spans' outputs, V] float32. Stores the new tokens' keys and values in `cache`."""
        plan = cache.plan(step)
        x = F.embedding(plan.token_ids, self.embedding).float()
        if self.config.embedding_scale != 1:
            x *= self.config.embedding_scale
        turns, masks = self.turns[plan.positions], Masks(x.device, cache.dtype)
        tilts = _tilts(step, self.config, x.device)
        for number, layer in enumerate(self.layers):
            x = layer.forward(x, turns, plan, masks, cache, tilts[number], step.guarded)
        self._report(step.guarded)
        logits: Tensor = self.head(self.norm.forward(x[plan.output_rows], cache.dtype))
        return logits.mul_(self.config.logit_scale) if self.config.logit_scale != 1 else logits

    def pack(self, mode: Mode = "none") -> None:
        """See Layer.pack, Head.pack."""
        for layer in self.layers:
            layer.pack(mode)
        self.head.pack(mode)

    def _report(self, guarded: bool) -> None:
        mixtures = [(number, layer.ffn) for number, layer in enumerate(self.layers) if isinstance(layer.ffn, Moe)]
        if mixtures:
            chosen = torch.stack([moe.chosen for _, moe in mixtures])
            self.routes = list(mixtures[0][1].router.experts_of(chosen))
        self.scores = [moe.router.scores for _, moe in mixtures]
        self.faults = [(number, expert) for number, moe in mixtures for expert in moe.faults] if guarded else []


def build_model(config: ModelConfig, tensors: dict[str, Tensor], device: torch.device | str) -> Model:
    """`tensors` has exactly the model's parameters; without a "head.weight" the embedding is the head."""
    with torch.device("meta"):
        model = Model(config)
    if config.tied_embeddings:
        tensors = {**tensors, "head.weight": tensors["embedding"]}
    model.load_state_dict(tensors, assign=True)
    return finish_model(model, device)


def finish_model(model: Model, device: torch.device | str) -> Model:
    """What is left to do when every parameter has its values."""
    config = model.config
    model.turns = rotary_turns(config.rope, config.head_dim, config.context_tokens)
    return model.to(device).requires_grad_(False).eval()


def stays_float32(name: str, config: ModelConfig) -> bool:
    """Whether the parameter `name` has float32 in a model of any dtype: norms, sinks, biases, exact routers."""
    is_router = name.endswith("router.score.weight")
    return name.endswith((".bias", "norm.weight", "sinks")) or (is_router and config.float32_router)


def _tilts(step: Step, config: ModelConfig, device: torch.device) -> Sequence[Tensor | None]:
    """By layer, what multiplies the router's probabilities: [T, E] or [1, E], or None for nothing."""
    tilts: list[Tensor | None] = [None] * config.layers
    boosted: Tensor | None = None
    if any(span.boosts for span in step.spans):
        boosted = torch.ones(len(step.token_ids), config.num_experts, device=device)
        first = 0
        for span in step.spans:
            for boost in span.boosts:
                boosted[first : first + span.length, list(boost.experts)] *= boost.factor
            first += span.length
        tilts = [boosted] * config.layers
    for number, expert in step.left_out:
        tilt = tilts[number]
        if tilt is None or tilt is boosted:
            tilt = torch.ones(1, config.num_experts, device=device) if tilt is None else tilt.clone()
        tilt[:, expert] = 0
        tilts[number] = tilt
    return tilts
