# SPDX-License-Identifier: Apache-2.0
"""That all ranks make the same thing with the same options: an exchange, in which each tells what it makes.

Used by team.py, meeting.py and collectives/. Document: docs/programs.md, "Finding each other".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gda.errors import BootstrapError

if TYPE_CHECKING:
    from gda.comm.bootstrap import Bootstrap

__all__ = ["agree"]


def agree(
    bootstrap: Bootstrap, what: str, options: Mapping[str, object], payload: bytes = b"", *, call: str = "collective"
) -> list[bytes]:
    """The payloads of all ranks. Collective. Raises BootstrapError, which names the rank, unless all make the same."""
    own = json.dumps([what, dict(options)], default=repr).encode()
    payloads = []
    for rank, data in enumerate(bootstrap.allgather(own + b"\n" + payload, call=call)):
        theirs, _, rest = data.partition(b"\n")  # which JSON has none of
        if theirs != own:
            raise BootstrapError(
                f"rank {rank} makes {_said(theirs)}, this rank {_said(own)}", rank=rank, phase=bootstrap.phase - 1,
                advice=f"all ranks make the same {call}s in the same order, with the same options",
            )  # fmt: skip
        payloads.append(rest)
    return payloads


def _said(data: bytes) -> str:
    try:
        what, options = json.loads(data)
        return f"{what} with {', '.join(f'{name}={value!r}' for name, value in options.items()) or 'no options'}"
    except (ValueError, TypeError, AttributeError):
        return f"something else ({data[:32]!r})"
