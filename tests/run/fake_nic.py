# SPDX-License-Identifier: Apache-2.0
"""A software NIC that only takes notes of what launches on a GPU ask of it."""

from __future__ import annotations


class FakeNic:
    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def set_thread(self, mode: str) -> None:
        self.told.append(("thread", mode))

    def set_gpu_staging(self, on: bool) -> None:
        self.told.append(("staging", on))
