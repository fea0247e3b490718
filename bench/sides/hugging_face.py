"""transformers on the same GGUF file, in bfloat16: `generate` on all prompts as one batch, or, if the job says so, its
continuous batching.

    python -m bench.sides.hugging_face MODEL
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import dequantize
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, StoppingCriteria
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

from bench.side import THREADS, Stopwatch, serve
from model_runtime.gguf_file import GgufFile
from model_runtime.tokenizer import Tokenizer

ATTENTION = "sdpa"
PAGE_TOKENS, BATCH_TOKENS = 256, 512
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}


def load_llama(path: Path) -> LlamaForCausalLM:
    """As AutoModel.from_pretrained(gguf_file=...) makes it, without its 20 s of looking for names."""
    file = GgufFile(path)
    config = _config(file)
    config._attn_implementation = ATTENTION
    undo, states = LlamaTensorProcessor(), {}
    for name in file.tensors:
        kind, data, row_bytes = file.rows(name)
        weight = dequantize(np.frombuffer(data, np.uint8).reshape(*file.tensors[name].shape[:-1], row_bytes), kind)
        if "attn_q" in name or "attn_k" in name:
            keys = config.num_key_value_heads if "attn_k" in name else None
            weight = undo._reverse_permute_weights(weight, config.num_attention_heads, keys)
        states[OUTER.get(name) or _inner(name)] = torch.from_numpy(weight).bfloat16()
    states["lm_head.weight"] = states["model.embed_tokens.weight"]
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    model.load_state_dict(states, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()


def _inner(name: str) -> str:
    _, layer, part, _ = name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def _config(file: GgufFile) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(file.require("tokenizer.ggml.tokens", list)),
        hidden_size=file.require("llama.embedding_length", int),
        intermediate_size=file.require("llama.feed_forward_length", int),
        num_hidden_layers=file.require("llama.block_count", int),
        num_attention_heads=file.require("llama.attention.head_count", int),
        num_key_value_heads=file.require("llama.attention.head_count_kv", int),
        max_position_embeddings=file.require("llama.context_length", int),
        rms_norm_eps=file.require("llama.attention.layer_norm_rms_epsilon", float),
        rope_parameters={"rope_type": "default", "rope_theta": file.require("llama.rope.freq_base", float)},
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=True,
    )


class Clock(StoppingCriteria):
    """Notes every token of a batch; stops nothing."""

    def __init__(self, streams: int) -> None:
        self.watch = Stopwatch(streams)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **more: Any) -> torch.Tensor:
        now = time.perf_counter()
        for stream, token_id in enumerate(input_ids[:, -1].tolist()):
            self.watch.note(stream, token_id, now)
        return torch.zeros(len(input_ids), dtype=torch.bool)


def static(model: LlamaForCausalLM, never: list[int], job: dict[str, Any]) -> dict[str, Any]:
    prompts = torch.tensor(job["prompts"])
    settings = GenerationConfig(
        max_new_tokens=job["tokens"], do_sample=False, suppress_tokens=never, pad_token_id=0, use_cache=True
    )
    clock = Clock(len(prompts))
    with torch.inference_mode():
        model.generate(prompts, settings, stopping_criteria=[clock], attention_mask=torch.ones_like(prompts))
    return {"times": clock.watch.times, "tokens": clock.watch.tokens}


def continuous(model: LlamaForCausalLM, never: list[int], job: dict[str, Any]) -> dict[str, Any]:
    """Its manager starts anew for every job, as `generate_batch` does it; that is not counted."""
    prompts, tokens = job["prompts"], job["tokens"]
    pages = -(-(max(map(len, prompts)) + tokens) // PAGE_TOKENS) + 1
    batching = ContinuousBatchingConfig(
        page_size=PAGE_TOKENS, num_blocks=pages * len(prompts), max_batch_tokens=BATCH_TOKENS
    )
    settings = GenerationConfig(
        max_new_tokens=tokens, do_sample=False, suppress_tokens=never, pad_token_id=0, eos_token_id=-1
    )
    with torch.inference_mode():
        done = model.generate_batch(
            prompts, generation_config=settings, continuous_batching_config=batching, record_timestamps=True
        )
    results = list(done.values())
    assert len(results) == len(prompts) and not any(result.error for result in results), "a request failed"
    started = min(result.created_time for result in results)
    return {
        "times": [[at - started for at in result.timestamps] for result in results],
        "tokens": [result.generated_tokens for result in results],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    given = parser.parse_args()

    def load() -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
        torch.set_num_threads(THREADS)
        started = time.perf_counter()
        model = load_llama(given.path)
        never = sorted(Tokenizer.from_checkpoint(given.path).eos_ids)
        ready = {"name": f"transformers {transformers.__version__}", "load_s": time.perf_counter() - started}
        return ready, lambda job: (continuous if job.get("continuous") else static)(model, never, job)

    serve(load)


if __name__ == "__main__":
    main()
