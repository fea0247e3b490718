"""A block is found by everything before its end, and by nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from model_runtime.kv_cache import BLOCK_TOKENS, Boost
from model_runtime.prefix_cache import PrefixCache


def keys(cache: PrefixCache, token_ids: list[int], boosts: tuple[Boost, ...] = ()) -> list[bytes]:
    made: list[bytes] = []
    cache.extend(made, token_ids, boosts)
    return made


tokens = st.lists(st.integers(0, 1), max_size=5 * BLOCK_TOKENS)


@given(tokens, tokens)
def test_the_longest_common_beginning_in_full_blocks_is_found(known, asked):
    cache = PrefixCache()
    for block, key in enumerate(keys(cache, known)):
        cache.put(key, block)
    common = 0
    while common < min(len(known), len(asked)) and known[common] == asked[common]:
        common += 1
    assert cache.find(keys(cache, asked)) == list(range(common // BLOCK_TOKENS))


@given(tokens, st.integers(0, 5 * BLOCK_TOKENS))
def test_keys_do_not_depend_on_how_the_tokens_came(token_ids, cut):
    cache = PrefixCache()
    made = keys(cache, token_ids[:cut])
    cache.extend(made, token_ids)
    assert made == keys(cache, token_ids) and len(made) == len(token_ids) // BLOCK_TOKENS


def test_the_same_tokens_with_a_boost_are_something_else():
    cache, ids = PrefixCache(), list(range(40))
    variants = [(), (Boost((1,), 4.0),), (Boost((1,), 2.0),), (Boost((2,), 4.0),)]
    assert len({keys(cache, ids, boosts)[-1] for boosts in variants}) == 4


def test_keys_are_private_to_the_process():
    assert keys(PrefixCache(), list(range(16))) != keys(PrefixCache(), list(range(16)))


def test_what_is_forgotten_is_not_found_and_ends_what_was_built_on_it():
    cache = PrefixCache()
    made = keys(cache, list(range(48)))
    for block, key in enumerate(made):
        cache.put(key, block)
    cache.forget(1)
    cache.forget(7)  # never had one
    assert cache.find(made) == [0] and 1 not in cache and 2 in cache
    cache.put(made[1], 9)
    assert cache.find(made) == [0, 9, 2]
    cache.clear()
    assert cache.find(made) == [] and 0 not in cache


def test_the_first_block_with_a_content_stays_the_one_to_find():
    cache = PrefixCache()
    (key,) = keys(cache, list(range(16)))
    cache.put(key, 3)
    cache.put(key, 5)
    assert cache.find([key]) == [3] and 5 not in cache


def test_a_copy_takes_the_place_of_what_was_copied():
    cache = PrefixCache()
    (key,) = keys(cache, list(range(16)))
    cache.put(key, 3)
    cache.rename(3, 5)
    cache.rename(4, 6)  # never had one
    assert cache.find([key]) == [5] and 3 not in cache and 6 not in cache
