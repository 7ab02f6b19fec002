# SPDX-License-Identifier: Apache-2.0
"""Types of gda/_proxy.pyx; its docstrings are there."""

from __future__ import annotations

from collections.abc import Iterable

from gda._verbs import AH, QP

MOST_INLINE_BYTES: int
MOST_PIECES: int
REFUSAL_TORN: int
REFUSAL_OPERATION: int
REFUSAL_SEGMENTS: int
REFUSAL_PIECES: int
REFUSAL_ADDRESS: int
REFUSAL_NOT_POSTED: int
REFUSAL_LOST: int

class Queue:
    def __init__(
        self,
        qp: QP,
        *,
        sq: int,
        cq: int,
        word: int,
        send_record: int,
        depth: int,
        cq_entries: int,
        collapsed: bool,
        cq_record: int = 0,
        rq: int = 0,
        receive_cq: int = 0,
        receive_record: int = 0,
        receive_depth: int = 0,
        user_index: int = 0,
        most_inline: int = 0,
        most_pieces: int = 1,
        iwarp: bool = False,
    ) -> None: ...
    def close(self) -> None: ...
    def start(self) -> None: ...
    def fail(self) -> None: ...
    def lose(self) -> None: ...
    @property
    def in_error(self) -> bool: ...
    def reset(self) -> None: ...
    def know(self, address: bytes, ah: AH) -> None: ...
    def look(self) -> bool: ...

def serve(
    queues: Iterable[Queue], stop: int, busy_ns: int, longest_sleep_ns: int, open_sleep_ns: int
) -> int: ...
