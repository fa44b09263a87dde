"""Numbers come out of the buffer exactly as ``float()`` reads them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d2ace.data.readers import decimals

DECIMAL = st.from_regex(r"[+-]?([0-9]{1,12}(\.[0-9]{0,9})?|\.[0-9]{1,9})", fullmatch=True)
NOISE = st.text(alphabet="0123456789.+-eE/:*_ x", max_size=20)


def parse(tokens: list[str]) -> tuple[np.ndarray, np.ndarray]:
    text = "".join(tokens).encode() + bytes(decimals.PADDING)
    length = np.array([len(token) for token in tokens], dtype=np.int64)
    start = np.cumsum(length) - length
    return decimals.parse(np.frombuffer(text, dtype=np.uint8), start, length)


@given(st.lists(DECIMAL, min_size=1, max_size=30))
def test_every_plain_token_is_the_float_python_reads(tokens: list[str]) -> None:
    value, plain = parse(tokens)
    for token, got, is_plain in zip(tokens, value.tolist(), plain.tolist(), strict=True):
        if is_plain:
            assert got == float(token)
        else:
            assert sum(map(str.isdigit, token)) > 14 or len(token) > 16


@given(st.lists(NOISE, min_size=1, max_size=30))
def test_noise_is_never_taken_for_a_number(tokens: list[str]) -> None:
    value, plain = parse(tokens)
    for token, got, is_plain in zip(tokens, value.tolist(), plain.tolist(), strict=True):
        if is_plain:
            assert got == float(token)
            assert "_" not in token
            assert token.strip() == token


def test_common_tokens_take_the_fast_way() -> None:
    tokens = ["0", "1", "12345678", "-0.170975", "0.646467", "73.", ".5", "+2", "-73.856273", "100"]
    value, plain = parse(tokens)
    assert plain.all()
    assert value.tolist() == [float(token) for token in tokens]


@pytest.mark.parametrize(
    "token", ["", "-", ".", "+.", "1e5", "1..2", "1.2.3", "--1", "1-", "/1", "1 "]
)
def test_other_tokens_are_distinguished(token: str) -> None:
    assert not parse([token])[1][0]


@pytest.mark.parametrize(
    "token", ["1e5", "-1.5E-3", "0.12345678901234567890", "123456789012345678"]
)
def test_one_token_of_any_length(token: str) -> None:
    assert decimals.parse_one(token.encode()) == float(token)


@pytest.mark.parametrize("token", ["nan", "inf", "1_000", "0x10", " 1", "1e", "", "1" * 401])
def test_one_token_that_is_no_decimal(token: str) -> None:
    assert decimals.parse_one(token.encode()) is None
