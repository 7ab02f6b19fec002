# SPDX-License-Identifier: Apache-2.0
"""What the vendor's syndrome of an error completion says: the second byte, behind the syndrome of the specification.

NVIDIA publishes no table. The first rows are what ConnectX cards are seen to answer in public reports, and
infiniband/mlx5dv.h names one; the others are the software NIC's own, one a cause (sim/engine/vendor.h), and those of
the host thread that posts for kernels (proxy/refusal.h). Used by the decoders.
"""

from __future__ import annotations

__all__ = ["PROXY", "PROXY_ADVICE", "SEEN_ON_CARDS", "SOFTWARE_NIC", "vendor_words"]

SEEN_ON_CARDS = {
    0x68: "the NIC could not carry out the work request",
    0x81: "no answer after all retries",
    0x87: "the peer had no receive, each time",
    0x88: "the peer refused key, range or right",
    0x89: "the peer failed while it carried the request out",
    0x8A: "the peer refused the kind of request",
    0x93: "a page was missing (on-demand paging)",
    0xF9: "flushed behind an earlier error",
}

SOFTWARE_NIC = {
    0x51: "the lkey, its bounds, domain or rights",
    0x52: "the lkey is good, its pages are gone",
    0x53: "a change of a key was refused",
    0x54: "the lkey of a receive",
    0x55: "the pages of a receive are gone",
    0x56: "the peer's request was refused while a receive was open",
    0x60: "index, queue pair number or size in the work request do not match: stale or torn",
    0x61: "the opcode is unknown, or not for this queue pair",
    0x62: "the segments do not fit the opcode",
    0x63: "the ring itself cannot be read",
    0x69: "longer than the largest message",
    0x6A: "the message is longer than the receive",
    0x6B: "read data of another length than was asked for",
}

PROXY = {
    0xE1: "index, queue pair number or size in the work request do not match: stale or torn",
    0xE2: "libibverbs has no such request (masked atomics, changes of keys), or none on this transport",
    0xE3: "the segments do not fit the opcode",
    0xE4: "more pieces of memory, or more bytes inline, than the queue pair behind takes",
    0xE5: "a datagram to an address that this queue pair's peer() did not make",
    0xE6: "libibverbs refused to post it",
    0xE7: "the connection ended before the other side had confirmed it (iWARP)",
}
PROXY_ADVICE = 'decode the work request (formats.decode_wqe); docs/proxy.md says what only posting="direct" can'


def vendor_words(code: int) -> str:
    """In words and with where that is known from; "" for a code that no table here has."""
    if code in SEEN_ON_CARDS:
        return f"{SEEN_ON_CARDS[code]} (as cards answer)"
    if code in SOFTWARE_NIC:
        return f"{SOFTWARE_NIC[code]} (as the software NIC answers; a card may mean something else)"
    if code in PROXY:
        return f"{PROXY[code]} (as the proxy answers)"
    return ""
