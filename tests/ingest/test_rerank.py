"""A tiny cross-encoder with random weights: its order is arbitrary, and always the same."""

import asyncio
import threading

import pytest
import torch
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from ingest.rerank import BATCH, MOST, Reranker
from tests.ingest.made import found

PLAIN = ("harbour", "bridge", "closed", "open", "storm", "cake", "tram", "ferry", "light", "power")
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", *PLAIN)


def save(folder, labels=1):
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    torch.manual_seed(7)
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=labels,
        initializer_range=1.0,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("cross-encoder"))


@pytest.fixture
def reranker(folder):
    reranker = Reranker(folder, budget_s=60.0)
    yield reranker
    reranker.close()


def matches(count):
    made = [found(f"p{i}", " ".join(PLAIN[(i + j) % 10] for j in range(1 + i % 4))) for i in range(count)]
    for i, match in enumerate(made):
        match.why["recency"] = 1.0 + 0.1 * (i % 3)
    return made


async def test_the_order_is_the_models_times_recency(reranker, folder):
    some = matches(2 * BATCH + 3)
    ranked = await reranker.rerank("harbour bridge", some)
    pairs = [("harbour bridge", match.text) for match in some]
    scores = CrossEncoder(str(folder), device="cpu").predict(pairs, activation_fn=torch.nn.Sigmoid())
    expected = {match.post_id: float(score) * match.why["recency"] for match, score in zip(some, scores, strict=True)}
    assert {match.post_id: match.score for match in ranked} == pytest.approx(expected, abs=1e-5)
    assert [match.score for match in ranked] == sorted((match.score for match in ranked), reverse=True)
    assert [match.post_id for match in ranked] != [match.post_id for match in some]
    assert all(0 < match.why["rerank"] < 1 for match in ranked)
    assert reranker.late == 0


async def test_only_the_best_are_read_and_nothing_is_nothing(reranker):
    assert len(await reranker.rerank("harbour", matches(MOST + 5))) == MOST
    assert await reranker.rerank("harbour", []) == []


async def test_broken_text_is_read_too(reranker):
    assert len(await reranker.rerank("harbour", [*matches(2), *matches(1)])) == 3


async def test_when_it_is_late_the_first_order_stands_and_the_next_question_does_not_wait(folder):
    reranker = Reranker(folder, budget_s=0.0)
    some = matches(4)
    assert await reranker.rerank("harbour", some) == some
    assert reranker.late == 1
    assert reranker._score("harbour", ["bridge"], until=0.0) is None  # its thread does not work on for nobody
    reranker.close()


async def test_while_a_late_one_works_others_keep_their_order_at_once(folder):
    reranker, goes_on = Reranker(folder, budget_s=60.0), threading.Event()
    reranker._thread.submit(goes_on.wait)
    try:
        first = asyncio.create_task(reranker.rerank("harbour", matches(4)))
        await asyncio.sleep(0)
        some = matches(3)
        async with asyncio.timeout(20):
            assert await reranker.rerank("bridge", some) == some
        assert reranker.late == 1
    finally:
        goes_on.set()
    assert (await first)[0].why["rerank"] > 0
    assert "rerank" in (await reranker.rerank("bridge", some))[0].why
    reranker.close()


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no cross-encoder"):
        Reranker(tmp_path)


def test_a_model_with_several_scores_is_refused(tmp_path):
    with pytest.raises(ValueError, match="3 scores"):
        Reranker(save(tmp_path, labels=3))
