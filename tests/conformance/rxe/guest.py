# SPDX-License-Identifier: Apache-2.0
"""A virtual machine whose kernel has a soft-RoCE device, and whose only cable is a UDP socket of this program.

Used by the tests of this directory. Emulation in software, no privilege; under load a boot takes a minute instead of
seconds, so limits are minutes. The guest runs the shell script that stands in its shared directory.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from . import kernel

BOOT_LIMIT_S = 240.0
MACHINE = (
    "-accel tcg,thread=multi -cpu max -M q35 -smp 2 -m 384 "
    "-nodefaults -no-user-config -no-reboot -display none -serial stdio"
)


class Guest:
    """One guest. Its frames go to UDP port `peer_port` of 127.0.0.1, and it takes what comes from there.

    `share` is a directory that both see, in the guest at SHARE; `script` runs there once the device rxe0 is up. Without
    `address6` there is no IPv6. With the module `siw` its device is siw0, of soft-iWARP, instead.
    """

    SHARE = "/run/share"

    def __init__(
        self,
        share: Path,
        script: str,
        *,
        port: int,
        peer_port: int,
        address: str,
        mac: str,
        address6: str = "",
        mtu: int = 1500,
        siw: Path | None = None,
    ) -> None:
        bootable = kernel.prepare()
        self.share, self.release = share, bootable.release
        (share / "script").write_text(script)
        if siw is not None:
            shutil.copy(siw, share / "siw.ko")
        self._log = share / "console"
        nic = f"virtio-net-pci,netdev=n0,romfile=,mac={mac},speed=10000,duplex=full"
        ends = (
            f"local.type=inet,local.host=127.0.0.1,local.port={port},"
            f"remote.type=inet,remote.host=127.0.0.1,remote.port={peer_port}"
        )
        words = (
            "console=ttyS0,115200 quiet panic=-1 mitigations=off nokaslr no_timer_check "
            f"guest.address={address}/24 guest.mtu={mtu}" + (f" guest.address6={address6}/64" if address6 else "")
            + (" guest.device=siw" if siw else "")
        )
        command = [
            "setpriv", "--pdeathsig", "KILL", kernel.qemu(), *MACHINE.split(),
            "-kernel", str(bootable.vmlinux), "-initrd", str(bootable.initramfs), "-append", words,
            "-fsdev", "local,id=r,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=r,mount_tag=hostroot",
            "-fsdev", f"local,id=s,path={share},security_model=none",
            "-device", "virtio-9p-pci,fsdev=s,mount_tag=share",
            "-netdev", f"dgram,id=n0,{ends}", "-device", nic + (f",host_mtu={mtu}" if mtu > 1500 else ""),
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def console(self) -> str:
        """Everything that the guest printed so far."""
        return self._log.read_text(errors="replace")

    def running(self) -> bool:
        """Whether the emulator still runs."""
        return self._process.poll() is None

    def alive(self) -> str:
        """Return what it printed so far; fails if it has ended."""
        assert self.running(), f"the guest ended:\n{self.console()[-3000:]}"
        return self.console()

    def exit_status(self, limit_s: float = BOOT_LIMIT_S) -> int:
        """Wait for the script's end and return its status: the emulator's own is 0 whatever the script did."""
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            what = f"the guest's script did not end within {limit_s} s"
            raise AssertionError(f"{what}:\n{self.console()[-3000:]}") from None
        found = re.findall(r"^GUEST-EXIT (\d+)", self.console(), re.MULTILINE)
        if not found:
            raise AssertionError(f"the guest ended without a status:\n{self.console()[-3000:]}")
        return int(found[-1])

    def end(self) -> None:
        """Power off."""
        if self.running():
            self._process.kill()
            self._process.wait()
