# SPDX-License-Identifier: Apache-2.0
"""The proxy on the kernel's soft-iWARP: this project's own tests in a guest whose only device is siw0.

As proxied.py, without the far end: the software NIC speaks RoCE. Of tests/device/test_proxied.py what iWARP can do.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import cable, siw
from .guest import Guest
from .proxied import GUEST, LIMIT_S, NETDEV_MTU, Outcome, await_file, compile_kernels, of_pytest, script_of

_SHARED, _OWN = "tests/device/test_proxied.py", "tests/conformance/rxe/iwarp_cases.py"
# No atomics, no immediate data, no other transports, no way back from an error; scopes and strided puts whole.
TAKEN = [
    "test_puts_arrive_however_the_nic_is_told", "test_get", "test_get_is_split_like_put",
    "test_inline_values_of_every_length", "test_nop", "test_one_put_of_many_threads", "test_pieces",
    "test_a_piece_longer_than_a_message_is_several",
    "test_put_signal_by_a_kernel_of_the_library[collapsed-GDA_SIGNAL_SET]",
    "test_put_signal_by_a_kernel_of_the_library[ring-GDA_SIGNAL_SET]",
]  # fmt: skip


def outcomes(directory: Path) -> Iterator[Outcome]:
    """Each case as it ended."""
    module = siw.module()
    cases = [_OWN, *(f"'{_SHARED}::{name}'" for name in TAKEN)]
    compile_kernels([_SHARED, _OWN])
    share = directory / "share"
    share.mkdir()
    near, far = cable.ports(2)
    with Guest(
        share, script_of(cases, []), port=far, peer_port=near, address=GUEST, mac="52:54:00:00:00:02",
        mtu=NETDEV_MTU, siw=module,
    ) as guest:  # fmt: skip
        await_file(guest, share / "cases.xml", LIMIT_S)
        yield from of_pytest(share / "cases.xml")
        status = guest.exit_status()
        assert status == 0, guest.console()[-3000:]
