# SPDX-License-Identifier: Apache-2.0
"""Draws put.svg: how tshark lists the capture of one put that loses a packet. `python docs/pictures/put.py [FILE]`.

Two software NICs in one process, virtual time: the same packets every time. tests/whole/test_picture.py compares them
with the picture that is in the documents.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

BYTES = 10_000
FAULTS = "drop request psn=101 first=1"
PROGRAM = r"""
import sys
import numpy as np
import gda
from gda import sim
from gda.nic import connect

KERNEL = '''
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, bytes), GDA_MS(5000));
}
'''
capture, faults, bytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
with gda.open("mlx5_0") as here, gda.open("mlx5_1") as there:
    source, target = np.ones(bytes, np.uint8), np.zeros(bytes, np.uint8)
    src, dst = here.register(source), there.register(target)
    a, b = here.queue_pair(psn=100), there.queue_pair(psn=7)
    connect(a, b, path_mtu=4096)
    with sim.virtual_time(), sim.capture(capture), sim.faults(faults):
        gda.Kernel(KERNEL, target="host").put[1, 1](a, dst, src, bytes)
    assert (source == target).all()
"""
FIELDS = (
    "frame.interface_name", "frame.packet_flags_direction", "frame.len", "infiniband.bth.psn", "_ws.col.Info",
    "frame.comment",
)  # fmt: skip
DIRECTIONS = {1: "receives", 2: "sends"}
COLUMNS = 118


def rows(directory: Path) -> list[list[str]]:
    """The packets of a new capture: who, bytes, PSN, tshark's words, the software NIC's comment."""
    capture = directory / "put.pcapng"
    environment = {
        **os.environ, "GDA_NIC": "software", "GDA_SIM_NICS": "2", "GDA_SIM_DIRECTORY": str(directory / "nics"),
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", PROGRAM, str(capture), FAULTS, str(BYTES)], env=environment, check=True)
    command = ["tshark", "-n", "-r", str(capture), "-T", "fields"]
    for field in FIELDS:
        command += ["-e", field]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = []
    for line in listed.splitlines():
        interface, direction, *rest = line.split("\t")
        number = interface.rpartition("-")[2]  # of the slot: the first NIC has 0 in a directory of its own
        rest[-1] = rest[-1].partition("; posted by")[0].partition("; answered by")[0]  # other numbers each time
        found.append([f"mlx5_{number} {DIRECTIONS[int(direction, 0) % 4]}", *(text.strip() for text in rest)])
    return found


def picture(packets: list[list[str]]) -> str:
    """The list as SVG."""
    table = Table("no.", "NIC", "bytes", "PSN", "tshark", "comment", box=None, padding=(0, 1), expand=True)
    for column in (0, 2, 3):
        table.columns[column].justify = "right"
    for column in (0, 1, 2, 3, 4):
        table.columns[column].no_wrap = True
    for number, packet in enumerate(packets, 1):
        words = " ".join(packet)
        style = "bold red" if "dropped" in words else "yellow" if "Error" in words else ""
        table.add_row(str(number), *packet, style=style or ("green" if "again" in words else None))
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(table, markup=False)
    title = f"put of {BYTES:,} bytes, path MTU 4096, faults: {FAULTS}"
    drawn = console.export_svg(title=title, unique_id="put")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # nothing is loaded from elsewhere


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".svg")
    with tempfile.TemporaryDirectory() as place:
        target.write_text(picture(rows(Path(place))))
    print(f"wrote {target}")
