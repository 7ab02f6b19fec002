# SPDX-License-Identifier: Apache-2.0
"""Arrays of other libraries, as far as registration sees them. Used by the tests of memory."""

from __future__ import annotations


class OnlyDlpack:
    """An array that offers nothing but DLPack, as a framework's tensor without buffer protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()
