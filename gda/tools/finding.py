# SPDX-License-Identifier: Apache-2.0
"""A finding about a queue pair, how telling it is, and what each counter of a port means when it is not zero.

Used by diagnose.py, which asks the NIC, and by causes.py, which goes by what was seen from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["CAUSE", "COUNTED", "HINT", "LIKELY", "SAID", "SYMPTOM", "Counted", "Finding"]

# How telling a finding is: a cause that was seen, one that is likely, the NIC's own sentences, symptoms, hints.
CAUSE, LIKELY, SAID, SYMPTOM, HINT = 500, 400, 300, 200, 100


@dataclass(frozen=True)
class Finding:
    """One thing that was found: in short, the values behind it, what it means, and what to try."""

    headline: str
    meaning: str
    advice: str = ""
    values: dict[str, int | str] = field(default_factory=dict)
    rank: int = 0

    def __str__(self) -> str:
        text = f"{self.headline}\n  means: {self.meaning}"
        if self.values:
            text += f"\n  values: {', '.join(f'{name} {value}' for name, value in self.values.items())}"
        return text + f"\n  try: {self.advice}" if self.advice else text


@dataclass(frozen=True)
class Counted:
    """What a counter says when it is not zero."""

    counter: str
    rank: int
    headline: str
    meaning: str
    advice: str


COUNTED = (
    Counted(
        "packets_over_link_mtu", CAUSE + 90, "packets over link MTU",
        "the path MTU is larger than what the network device carries: longer packets are lost without a word",
        "connect without path_mtu, or raise the network device's MTU on every hop to the path MTU and 96 bytes",
    ),
    Counted(
        "packets_without_link", CAUSE + 80, "packets lost without a link",
        "the port had no link when they were sent or should have been received",
        "look at the cable and at the network device (ip link); on the software NIC: set_link(True)",
    ),
    Counted(
        "fault_link_down", CAUSE + 79, "packets lost because faults took the link down",
        "the setting link=down of the faults that were asked for", "end those faults: gda.sim.faults, GDA_SIM_FAULTS",
    ),
    Counted(
        "packets_to_nowhere", CAUSE + 70, "packets to an address that nobody has",
        "no NIC that can be reached has the destination GID any more, or none ever had it",
        "is the other process alive? did its address change after the exchange? exchange the information anew",
    ),
    Counted(
        "wire_unsent", LIKELY + 60, "packets that the host refused to send",
        "the UDP socket did not take them: no route, or a buffer that is full",
        "look at the host's route to the peer's address",
    ),
    Counted(
        "wire_bad_icrc", LIKELY + 50, "packets with a wrong ICRC",
        "packets were changed on the way, or somebody computes the ICRC differently",
        "capture them; look for a middle box that rewrites headers",
    ),
    Counted(
        "fault_dropped", LIKELY + 40, "packets lost to faults",
        "the faults that were asked for dropped them", "end those faults: gda.sim.faults, GDA_SIM_FAULTS",
    ),
    Counted(
        "fault_corrupted", LIKELY + 39, "packets corrupted by faults",
        "the faults that were asked for changed a bit of each", "end those faults: gda.sim.faults, GDA_SIM_FAULTS",
    ),
    Counted(
        "transmit_discards", LIKELY + 38, "packets discarded by the port before they were sent",
        "the port could not send them in time, or its link was down",
        "look for congestion: pause frames, ECN (ethtool -S)",
    ),
    Counted(
        "receive_errors", LIKELY + 37, "packets received with errors",
        "bits change on the cable, or packets are malformed", "look at the cable and the transceivers (ethtool -S)",
    ),
    Counted(
        "link_downed", LIKELY + 36, "losses of the link",
        "the link went down and came back while the queue pair was connected", "look at the cable and the switch",
    ),
    Counted(
        "cq_overruns", LIKELY + 35, "completion queues that overran",
        "completions came faster than they were read, and the queue failed",
        "make it deeper, poll more often, or store the consumer index",
    ),
    Counted(
        "accesses_refused", LIKELY + 20, "requests of peers refused here",
        "a key, range or right did not fit what a peer asked for", "compare rkey, address and length with the region's",
    ),
    Counted(
        "lengths_exceeded", LIKELY + 19, "messages longer than their receive",
        "a peer sent more than the receive that was posted here holds", "post receives as long as the longest send",
    ),
    Counted(
        "rnr_naks_sent", SYMPTOM + 60, "requests that found no receive here",
        "a peer sent before a receive was posted, and was told to wait", "post receives before the peer sends",
    ),
    Counted(
        "rnr_retries", SYMPTOM + 59, "requests repeated because the peer had no receive",
        "the peer had no receive posted (RNR NAK)", "post receives there before sending here",
    ),
    Counted(
        "packets_dropped", SYMPTOM + 50, "packets dropped on arrival",
        "they were for no queue pair, or for one that cannot receive, or came from a place it is not connected to",
        "compare both sides' queue pair numbers, states and GIDs",
    ),
    Counted(
        "ack_timeouts", SYMPTOM + 40, "rounds of resending after a timeout",
        "requests or answers were lost, or the peer is dead or slow", "look at the peer: diagnose its queue pair, too",
    ),
    Counted(
        "sequence_naks", SYMPTOM + 30, "times that the peer missed a packet",
        "packets to it were lost or overtook each other", "look for loss or several paths in the network",
    ),
    Counted(
        "missed_responses", SYMPTOM + 29, "responses with a gap before them",
        "responses of reads or atomics were lost or overtook each other", "look for loss in the network",
    ),
    Counted(
        "out_of_order", SYMPTOM + 20, "requests that came with a gap before them",
        "packets from a peer were lost or overtook each other", "look for loss or several paths in the network",
    ),
    Counted(
        "duplicates", SYMPTOM + 10, "requests that came again",
        "an answer of this side was lost or late, and the peer repeated the request", "look for loss on the way back",
    ),
)  # fmt: skip
