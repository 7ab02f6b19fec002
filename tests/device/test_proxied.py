# SPDX-License-Identifier: Apache-2.0
"""The same cases and kernels where the proxy posts: get, atomics, signals, messages, scopes, datagrams, two transports.

Not here: masked atomics, which libibverbs does not have (test_proxy.py in tests/nic says how they are refused).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gda

from .doorbell_cases import (  # noqa: F401
    bell,
    test_a_full_ring_and_two_to_the_sixteen,
    test_an_error_is_told_however_the_nic_is,
    test_an_owner_tells_it_the_same,
    test_puts_arrive_however_the_nic_is_told,
    told,
)
from .message_cases import (  # noqa: F401
    kernels,
    test_a_receive_that_is_too_short,
    test_after_a_reset_all_starts_anew,
    test_messages_between_two_blocks,
    test_one_receive_for_a_warp_or_block,
    test_put_with_immediate_tells_the_receiver,
)
from .operation_cases import (  # noqa: F401
    allocate,
    k,
    limit_ns,
    queue,
    test_64_producers_count_exactly,
    test_atomic_on_an_odd_address,
    test_compare_swap,
    test_everything_at_once,
    test_fetch_add_wraps,
    test_get,
    test_get_is_split_like_put,
    test_inline_values_of_every_length,
    test_lock_by_compare_swap,
    test_nop,
    test_one_of_64_swaps,
    test_result_without_local_write,
    test_rights_that_are_missing,
)
from .scope_cases import scopes, test_long_transfers_are_split_over_lanes, test_one_put_of_many_threads  # noqa: F401
from .signal_cases import (  # noqa: F401
    signals,
    test_a_fenced_request_sends_what_was_fetched_before_it,
    test_data_is_there_when_its_signal_is,
    test_put_signal_by_a_kernel_of_the_library,
    test_put_signal_of_several_messages,
)
from .strided_cases import strided, test_a_piece_longer_than_a_message_is_several, test_pieces  # noqa: F401
from .unreliable_cases import test_datagrams, test_puts_and_sends_over_uc, unreliable  # noqa: F401


@pytest.fixture(scope="module")
def target() -> str:
    return "host"


@pytest.fixture
def placement() -> str:
    return "host"


@pytest.fixture
def mode() -> str:
    return "proxy"


@pytest.fixture(scope="module")
def nic() -> Iterator[gda.Nic]:
    with gda.open(posting="proxy") as nic:
        assert nic.posting == "proxy"
        yield nic
