# SPDX-License-Identifier: Apache-2.0
"""What a NIC answers, written down and compared: `python -m gda record`. Document: docs/hardware.md.

journal: what is written down and how; sequence: what is tried; peer: the other end, here or in another process;
compare: the differences of two records, in the order of what they mean.
"""

from gda.tools.record.compare import Difference, compare
from gda.tools.record.journal import SCHEMA, Journal
from gda.tools.record.sequence import record

__all__ = ["SCHEMA", "Difference", "Journal", "compare", "record"]
