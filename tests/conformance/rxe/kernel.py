# SPDX-License-Identifier: Apache-2.0
"""What a guest boots: Debian's kernel, uncompressed, and an initramfs with the modules of soft-RoCE.

Called by guest.py. Packages are downloaded with apt-get into a cache directory and unpacked there, not installed, so
no privilege is needed; a new version of the kernel's package makes a new set. Formats: the kernel's documentation,
"Documentation/x86/boot.rst" (header of a bzImage) and "driver-api/early-userspace/buffer-format.rst" (newc).
"""

from __future__ import annotations

import fcntl
import lzma
import os
import re
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DEFAULT_CACHE = ROOT / "build" / "rxe"
# What each stage needs; what these depend on comes before them. No dependency names crc32_generic: soft-RoCE asks the
# kernel's crypto layer for "crc32" when a device is made, and fails with ENOENT without it.
WANTED = [
    "virtio_pci", "virtio_net", "9p", "9pnet_virtio", "overlay",
    "crc32_generic", "crc32_pclmul", "ib_uverbs", "rdma_rxe", "rdma_ucm", "sch_netem",
    "crc32c_generic", "libcrc32c",  # of siw, which comes from elsewhere: siw.py
]  # fmt: skip


class NotAvailableError(Exception):
    """Something that a guest needs is missing on this machine; the text says what to do."""


@dataclass(frozen=True)
class Bootable:
    """A kernel image for direct boot, its initramfs, and the kernel's release."""

    vmlinux: Path
    initramfs: Path
    release: str


def qemu() -> str:
    """Path of the emulator."""
    found = shutil.which("qemu-system-x86_64")
    if found is None:
        raise NotAvailableError("apt-get install --no-install-recommends qemu-system-x86")
    return found


def prepare(cache: Path = DEFAULT_CACHE) -> Bootable:
    """Return what to boot, made now unless the cache has it. Two callers at once wait for each other."""
    qemu()
    cache.mkdir(parents=True, exist_ok=True)
    package = _kernel_package()
    recipe = f"{package} {' '.join(WANTED)} {INIT}"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        release = package.removeprefix("linux-image-")
        bootable = Bootable(cache / f"vmlinux-{release}", cache / f"initramfs-{release}", release)
        stamp = cache / "recipe"
        if not (stamp.exists() and stamp.read_text() == recipe and bootable.initramfs.exists()):
            _make(bootable, package, cache)
            stamp.write_text(recipe)
    return bootable


def _kernel_package() -> str:
    # The full kernel: the one for clouds has neither soft-RoCE nor 9p.
    said = run(["apt-cache", "depends", "linux-image-amd64"])
    found = re.search(r"Depends: (linux-image-\d\S+-amd64)$", said, re.MULTILINE)
    if found is None:
        raise NotAvailableError("apt-cache knows no linux-image-amd64: apt-get update")
    return found[1]


def _make(bootable: Bootable, package: str, cache: Path) -> None:
    scratch = cache / "unpacked"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    run(["apt-get", "download", "-q", package, "busybox-static"], scratch)
    with Package(next(scratch.glob("busybox*.deb"))) as files:
        busybox = next(content(files, member) for member in files if member.name.endswith("bin/busybox"))
    image, modules = b"", {}
    with Package(next(scratch.glob("linux-image*.deb"))) as files:
        for member in files:
            if f"/vmlinuz-{bootable.release}" in member.name:
                image = content(files, member)
            elif re.search(r"\.ko(\.xz)?$", member.name) and _belongs(member.name):
                data = content(files, member)
                name = Path(member.name).name.removesuffix(".xz").removesuffix(".ko").replace("-", "_")
                modules[name] = lzma.decompress(data) if member.name.endswith(".xz") else data
    bootable.vmlinux.write_bytes(_uncompressed(image))
    order = _in_order(modules)
    entries: list[tuple[str, int, bytes]] = [(d, stat.S_IFDIR | 0o755, b"") for d in ("bin", "dev", "proc", "sys", "m")]
    entries += [("bin/busybox", stat.S_IFREG | 0o755, busybox), ("init", stat.S_IFREG | 0o755, INIT.encode())]
    entries += [(f"m/{i:02}-{name}.ko", stat.S_IFREG | 0o644, modules[name]) for i, name in enumerate(order)]
    bootable.initramfs.write_bytes(_newc(entries))
    shutil.rmtree(scratch)


def run(command: list[str], where: Path | None = None) -> str:
    # Without a sandbox user: that one may not be able to write here.
    options = ["-o", "APT::Sandbox::User=root"] if command[0] == "apt-get" and os.getuid() == 0 else []
    try:
        done = subprocess.run([command[0], *options, *command[1:]], cwd=where, capture_output=True, text=True)
    except FileNotFoundError:
        raise NotAvailableError(f"{command[0]} is not installed: this needs Debian or Ubuntu") from None
    if done.returncode:
        raise NotAvailableError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}; try: apt-get update")
    return done.stdout


class Package:
    """Members of a Debian package, as a tar stream."""

    def __init__(self, package: Path) -> None:
        self._unpacker = subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._files = tarfile.open(fileobj=self._unpacker.stdout, mode="r|")  # noqa: SIM115

    def __enter__(self) -> tarfile.TarFile:
        return self._files

    def __exit__(self, *_: object) -> None:
        assert self._unpacker.stdout is not None
        self._unpacker.stdout.close()
        self._unpacker.wait()


def _belongs(path: str) -> bool:
    """Whether a module lies where one of WANTED, or what it depends on, may lie: the rest is not unpacked."""
    return re.search(r"/kernel/(arch/x86/crypto|crypto|drivers/(virtio|net|infiniband)|fs|net|lib)/", path) is not None


def content(files: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = files.extractfile(member)
    assert file is not None, f"{member.name} is not a plain file"
    return file.read()


def _in_order(modules: dict[str, bytes]) -> list[str]:
    """Names in an order in which each finds what it depends on. What is built into the kernel has no file."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order or name not in modules:
            return
        found = re.search(rb"\0depends=([^\0]*)\0", modules[name])
        for needed in found[1].decode().replace("-", "_").split(",") if found else []:
            visit(needed)
        order.append(name)

    for name in WANTED:
        visit(name)
    if "rdma_rxe" not in order:
        raise NotAvailableError("this kernel package has no rdma_rxe.ko")
    return order


def _uncompressed(image: bytes) -> bytes:
    """The ELF file inside a bzImage: a boot of it saves seconds of decompression in emulation."""
    setup_sectors = image[0x1F1] or 4
    offset, length = (int.from_bytes(image[at : at + 4], "little") for at in (0x248, 0x24C))
    payload = image[(setup_sectors + 1) * 512 + offset :][:length]
    if payload[:6] == b"\xfd7zXZ\0":
        return lzma.LZMADecompressor().decompress(payload)
    if payload[:4] == b"\x28\xb5\x2f\xfd":
        return subprocess.run(["zstd", "-dcq"], input=payload, stdout=subprocess.PIPE).stdout
    raise NotAvailableError(f"the kernel is compressed in an unknown way ({payload[:6].hex()})")


def _newc(entries: list[tuple[str, int, bytes]]) -> bytes:
    def archive() -> Iterator[bytes]:
        for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
            path = name.encode() + b"\0"
            fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
            head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
            yield head + bytes(-len(head) % 4)
            yield data + bytes(-len(data) % 4)

    return b"".join(archive())


# The guest's root is the host's, by 9p, read-only under a layer in memory: the guest sees the host's Python and pyverbs
# at their paths, and what it writes never reaches the host but for the shared directory, mounted at /run/share.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /m/*.ko; do insmod $module || echo "insmod $module failed"; done
for word in $(cat /proc/cmdline); do case $word in guest.*) eval ${word#guest.} ;; esac; done
mkdir -p /host /layer /root
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro hostroot /host || echo "no root"
mount -t tmpfs layer /layer
mkdir /layer/upper /layer/work
mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work overlay /root || echo "no overlay"
for place in dev proc sys; do mount --bind /$place /root/$place; done
mount -t tmpfs run /root/run
mkdir -p /root/run/share
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none share /root/run/share || echo "no share"
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run
/bin/busybox ip link set lo up
/bin/busybox ip link set eth0 mtu ${mtu:-1500} up
/bin/busybox ip addr add $address dev eth0
cd /proc/sys/net/ipv6/conf/eth0
if [ "$address6" ]; then
  echo 0 >accept_dad; echo 0 >accept_ra; echo 0 >router_solicitations
  /bin/busybox ip -6 addr add $address6 dev eth0
else
  echo 1 >disable_ipv6
fi
cd /
if [ "$device" ]; then insmod /root/run/share/$device.ko || echo "insmod $device failed"; fi
device=${device:-rxe}
/bin/busybox chroot /root rdma link add ${device}0 type $device netdev eth0 || echo "no $device device"
/bin/busybox chroot /root /bin/sh /run/share/script
echo "GUEST-EXIT $?"
/bin/busybox poweroff -f
"""
