# SPDX-License-Identifier: Apache-2.0
"""Batches of work requests as NumPy arrays of WORK_REQUEST, a row a request: what _verbs.post_rows takes as bytes.

The declaration is the C struct of gda/_verbs.pxd; here it becomes a NumPy dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gda import _verbs
from gda.errors import ArgumentError

__all__ = ["WORK_REQUEST", "as_bytes"]

# Fields: wr_id, local_addr, remote_addr, compare_add, swap (64 bits); length in bytes, lkey, rkey, imm_data, opcode
# (IBV_WR_*), send_flags (IBV_SEND_*) (32 bits). Host byte order. All zero: an unsignaled RDMA WRITE of nothing.
WORK_REQUEST: np.dtype[np.void] = np.dtype(
    {
        "names": [name for name, _, _ in _verbs.WORK_REQUEST_FIELDS],
        "formats": [kind for _, kind, _ in _verbs.WORK_REQUEST_FIELDS],
        "offsets": [offset for _, _, offset in _verbs.WORK_REQUEST_FIELDS],
        "itemsize": _verbs.WORK_REQUEST_BYTES,
    }
)


def as_bytes(rows: Any) -> npt.NDArray[np.uint8]:
    """The bytes of a one-dimensional array of WORK_REQUEST, without a copy where they lie together."""
    if not isinstance(rows, np.ndarray) or rows.dtype != WORK_REQUEST or rows.ndim > 1:
        what = f"{rows.dtype} of shape {rows.shape}" if isinstance(rows, np.ndarray) else type(rows).__name__
        raise ArgumentError(
            f"a batch is a one-dimensional NumPy array of gda.WORK_REQUEST, not {what}",
            "rows = numpy.zeros(count, gda.WORK_REQUEST); rows['opcode'] = ...",
        )
    return np.ascontiguousarray(np.atleast_1d(rows)).view(np.uint8)
