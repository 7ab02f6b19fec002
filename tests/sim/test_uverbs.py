# SPDX-License-Identifier: Apache-2.0
"""The driver of the software NIC under unmodified programs: Debian's ibverbs-utils and small C programs of our own."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gda import sim
from gda.errors import ArgumentError, UnavailableError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEADLINE_S = 90
OPTIMISE = ["-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-Icuda", "-I."]

Run = Callable[..., subprocess.CompletedProcess[str]]


def _build_libraries(directory: Path) -> Path:
    """Both libraries as setup.py builds them, for a tree that was not built in place."""
    sources = [
        str(path.relative_to(ROOT))
        for room in ("engine", "link", "firmware", "uverbs")
        for path in sorted((ROOT / "sim" / room).glob("*.cc"))
        if path.name != "preload.cc"
    ]
    library, preload = directory / "libgda_sim.so", directory / "libgda_preload.so"
    for command in (
        ["g++", *OPTIMISE, "-shared", "-Wl,-Bsymbolic", "-o", str(library), *sources, "sim/steer.cc", "-ldl"],
        ["g++", *OPTIMISE, "-shared", "-o", str(preload), "sim/uverbs/preload.cc", f"-L{directory}", "-lgda_sim",
         "-Wl,-rpath,$ORIGIN"],
    ):
        subprocess.run(command, cwd=ROOT, check=True)
    return library


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What LD_PRELOAD must hold."""
    try:
        return sim.preload_libraries()
    except UnavailableError:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GDA_SIM_LIBRARY", str(_build_libraries(tmp_path_factory.mktemp("lib"))))
            return sim.preload_libraries()


@pytest.fixture(scope="module")
def environment(preload: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Environment of a program on the software NIC, with a meeting place of its own."""
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(preload),
        "GDA_SIM_DIRECTORY": str(tmp_path_factory.mktemp("meet")),
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
    }


@pytest.fixture(scope="module")
def run(environment: dict[str, str]) -> Run:
    """Runs a program on the software NIC to its end."""

    def runner(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(part) for part in command], env=environment, timeout=DEADLINE_S, text=True, capture_output=True,
            check=False, **options,  # type: ignore[call-overload]
        )

    return runner


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compiles a program of this directory against libibverbs and libmlx5, once."""
    directory = tmp_path_factory.mktemp("programs")

    def compiler(source: str) -> Path:
        program = directory / Path(source).stem
        if not program.exists():
            language = ["g++", "-std=c++17"] if source.endswith(".cc") else ["gcc"]
            subprocess.run(
                [*language, "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'cuda'}", "-o", str(program),
                 str(HERE / source), "-lmlx5", "-libverbs", "-lpthread", "-ldl"],
                check=True,
            )
        return program

    return compiler


def need(program: str) -> str:
    found = shutil.which(program)
    if not found:
        pytest.skip(f"not run: {program} is not installed (Debian package ibverbs-utils)")
    return found


# ---- Debian's programs ----


def test_devices_are_listed(run: Run) -> None:
    done = run(need("ibv_devices"))
    assert done.returncode == 0, done.stderr
    assert "mlx5_0" in done.stdout


def test_devinfo_prints_a_connectx_7(run: Run) -> None:
    done = run(need("ibv_devinfo"), "-v")
    assert done.returncode == 0, done.stderr
    fields = dict(re.findall(r"^\s*([\w \[\]]+?):\s+(\S.*)$", done.stdout, re.MULTILINE))
    assert fields["hca_id"] == "mlx5_0"
    assert fields["vendor_id"] == "0x02c9"
    assert fields["vendor_part_id"] == "4129"  # ConnectX-7
    assert re.fullmatch(r"28\.\d+\.\d{4}", fields["fw_ver"])
    assert fields["node_guid"] != "0000:0000:0000:0000"
    assert fields["state"].startswith("PORT_ACTIVE")
    assert fields["link_layer"] == "Ethernet"
    assert fields["phys_state"].startswith("LINK_UP")
    assert fields["active_mtu"].startswith("4096")
    assert fields["hca_core_clock"] == "1000000kHZ"
    for name in ("max_qp", "max_qp_wr", "max_cq", "max_cqe", "max_mr", "max_pd", "max_sge", "gid_tbl_len", "max_pkeys"):
        assert int(fields[name]) > 0, name
    assert fields["GID[  0]"].endswith("RoCE v1")
    assert re.match(r"fe80::.*RoCE v2$", fields["GID[  1]"])
    assert re.match(r"::ffff:127\..*RoCE v2$", fields["GID[  3]"])


def test_sysfs_follows_a_network_that_changes(environment: dict[str, str]) -> None:
    """Two NICs: their directories differ, and a change shows in the files of the one that it is about."""
    script = """
import os
from gda import attach
from pathlib import Path
nic = attach.software_nic()
port = [Path(f"/sys/class/infiniband/mlx5_{i}/ports/1") for i in (0, 1)]
def read(i, name):
    with open(port[i] / name) as file:
        return file.read().strip()
print(os.path.realpath("/sys/class/infiniband/mlx5_1/device"), os.stat("/dev/infiniband/uverbs1").st_rdev % 256)
print(read(0, "gids/3") != read(1, "gids/3"), read(1, "gid_attrs/ndevs/3"), read(1, "gids/5"))
print(os.access(port[1] / "gid_attrs/types/5", os.R_OK))
nic.set_gid(5, bytes(10) + bytes([255, 255, 10, 0, 0, 2]), "RoCE v2", nic=1)
nic.set_gid(0, None, nic=1)
nic.set_link(False, nic=1)
nic.set_mtu(1500, nic=1)
print(read(1, "gids/5"), read(1, "gid_attrs/types/5"), read(1, "gids/0"))
print(os.access(port[1] / "gid_attrs/types/0", 4))
print(read(1, "state"), read(1, "phys_state"), read(1, "../../device/net/lo/mtu"), read(0, "state"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**environment, "GDA_SIM_NICS": "2", "PYTHONPATH": str(ROOT)},
        timeout=DEADLINE_S, text=True, capture_output=True, check=False,
    )  # fmt: skip
    empty, mapped = ":".join(["0000"] * 8), "0000:0000:0000:0000:0000:ffff:0a00:0002"
    assert done.stdout.splitlines() == [
        "/sys/devices/pci0000:10/0000:12:00.0 193", f"True lo {empty}", "False", f"{mapped} RoCE v2 {empty}", "False",
        "1: DOWN 3: Disabled 1500 4: ACTIVE",
    ], done.stdout + done.stderr  # fmt: skip


def test_sysfs_of_two_ports(environment: dict[str, str]) -> None:
    """Each port has a directory; a change shows in that of the port that it is about, and traffic in its counters."""
    script = """
import gda
from gda import attach
from pathlib import Path
software = attach.software_nic()
print(software.ports, [p.name for p in sorted(Path("/sys/class/infiniband/mlx5_0/ports").iterdir())])
def read(port, name):
    with open(f"/sys/class/infiniband/mlx5_0/ports/{port}/{name}") as file:
        return file.read().strip()
def both(name):
    print(name, [read(port, name) for port in (1, 2)])
both("gid_attrs/types/3"), both("gid_attrs/ndevs/3"), both("link_layer"), both("rate"), both("pkeys/0")
print([[read(port, "gids/3")[-9:-2] for port in (1, 2)], read(1, "../../device/net/lo/dev_port")])
software.set_gid(5, bytes(10) + bytes([255, 255, 10, 0, 0, 2]), "RoCE v2", port=2)
software.set_link(False, port=1)
print([read(port, "gids/5")[-9:] for port in (1, 2)])
both("state"), both("phys_state")
software.set_link(True, port=1)
with gda.open(port=2) as nic:
    one, other = nic.loopback_pair()
    with nic.allocate(8) as memory:
        nic_put = gda.Kernel(
            '#include <gda/gda.h>\\n'
            'GDA_KERNEL(put)(gda_qp* qp, gda_mr mr) { gda_wait(qp, gda_put(qp, mr, 0, mr, 0, 8), GDA_MS(20000)); }',
            target="host",
        )
        nic_put.put[1, 1](one, memory)
both("counters/port_xmit_data"), both("hw_counters/rx_write_requests")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env={**environment, "GDA_SIM_PORTS": "2", "PYTHONPATH": str(ROOT)},
        timeout=DEADLINE_S, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "2 ['1', '2']", "gid_attrs/types/3 ['RoCE v2', 'RoCE v2']", "gid_attrs/ndevs/3 ['lo', 'lo']",
        "link_layer ['Ethernet', 'Ethernet']", "rate ['400 Gb/sec (4X NDR)', '400 Gb/sec (4X NDR)']",
        "pkeys/0 ['0xffff', '0xffff']", "[['7f47:00', '7f47:01'], '0']", "['0000:0000', '0a00:0002']",
        "state ['1: DOWN', '4: ACTIVE']", "phys_state ['3: Disabled', '5: LinkUp']",
        "counters/port_xmit_data ['0', '2']", "hw_counters/rx_write_requests ['0', '1']",
    ], done.stdout + done.stderr  # fmt: skip


def test_devinfo_lists_two_ports(environment: dict[str, str]) -> None:
    two = {**environment, "GDA_SIM_PORTS": "2"}
    done = subprocess.run(
        [need("ibv_devinfo"), "-v"], env=two, timeout=DEADLINE_S, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"phys_port_cnt:\s+(\d+)|port:\s+(\d+)|state:\s+PORT_(\w+)", done.stdout) == [
        ("2", "", ""), ("", "1", ""), ("", "", "ACTIVE"), ("", "2", ""), ("", "", "ACTIVE"),
    ]  # fmt: skip
    assert len(re.findall(r"::ffff:127\.71\.[01]\.\d+, RoCE v2", done.stdout)) == 2
    one_of = subprocess.run(
        [need("ibv_devinfo"), "-i", "3"], env=two, timeout=DEADLINE_S, text=True, capture_output=True, check=False
    )
    assert "invalid port" in (one_of.stdout + one_of.stderr).lower()


def test_sysfs_looks_real_to_other_programs(run: Run) -> None:
    script = (
        "import os; d = '/sys/class/infiniband/mlx5_0/device'; p = os.path.realpath(d); "
        "print(p, open(p + '/vendor').read().strip(), open(p + '/device').read().strip(), "
        "os.listdir('/sys/class/infiniband'), os.path.exists('/dev/infiniband/uverbs0'))"
    )
    done = run(sys.executable, "-c", script)
    assert done.stdout.split() == ["/sys/devices/pci0000:10/0000:11:00.0", "0x15b3", "0x1021", "['mlx5_0']", "True"]


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.mark.parametrize(
    "options",
    [
        pytest.param("-g 1", id="polling"),
        pytest.param("-g 1 -e", id="events"),
        pytest.param("-g 3", id="ipv4"),
        pytest.param("-g 1 -s 1 -n 1000 -c", id="one-byte"),
        pytest.param("-g 1 -s 1000000 -n 60 -c", id="not-a-multiple-of-the-mtu"),
        pytest.param("-g 1 -s 1048576 -n 60 -c -e", id="mebibyte-events"),
        pytest.param("-g 1 -m 1024 -r 32 -n 300 -c", id="small-mtu"),
        pytest.param("-g 1 -t -n 200", id="timestamps"),
        pytest.param("-g 3 -d mlx5_0 -i 2 -n 200 -c", id="port-2"),
    ],
)
def test_rc_pingpong_between_two_processes(environment: dict[str, str], options: str) -> None:
    command = [need("ibv_rc_pingpong"), "-p", str(_free_port()), *options.split()]
    environment = {**environment, "GDA_SIM_PORTS": "2" if "-i 2" in options else "1"}
    server = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for attempt in range(50):  # the server may not listen yet: the client then says so at once
            client = subprocess.run(
                [*command, "localhost"],
                env=environment, timeout=DEADLINE_S, text=True, capture_output=True, check=False,
            )
            if client.returncode == 0 or "Couldn't connect" not in client.stderr or server.poll() is not None:
                break
            assert attempt < 49, client.stderr
        output, _ = server.communicate(timeout=DEADLINE_S)
    finally:
        server.kill()
        server.wait()
    assert client.returncode == 0, client.stdout + client.stderr
    assert server.returncode == 0, output
    assert "usec/iter" in client.stdout
    assert "usec/iter" in output


# ---- programs of our own ----


@pytest.mark.parametrize(
    "check",
    ["netlink", "queries", "regions", "transitions", "events", "asynchronous", "ending", "leftovers", "threads",
     "children", "stolen", "pointers"],
)
def test_check(run: Run, compiled: Callable[[str], Path], preload: list[str], check: str) -> None:
    if check == "children" and "libtsan" in preload[0]:
        pytest.skip("not run: ThreadSanitizer does not survive vfork in a program with threads")
    done = run(compiled("uverbs_checks.c"), check)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "check",
    ["shared_receives", "limit_event", "transitions", "live_query", "limits", "exhaustion", "port_events",
     "counter_files", "dma_buffers", "vast_entries"],
)
def test_services(run: Run, compiled: Callable[[str], Path], check: str) -> None:
    done = run(compiled("uverbs_services.c"), check)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "check",
    ["domains", "xrc_domains", "queue_pairs", "completion_queues", "shared_receive_queues", "regions", "windows",
     "umems", "objects_by_command", "elements"],
)
def test_limits(run: Run, compiled: Callable[[str], Path], check: str) -> None:
    """As many as the device announces, then a refusal, then room again."""
    done = run(compiled("uverbs_limits.cc"), check)
    assert done.returncode == 0, done.stderr


def test_devx_queue_pair(run: Run, compiled: Callable[[str], Path]) -> None:
    done = run(compiled("uverbs_devx.cc"))
    assert done.returncode == 0, done.stderr


def test_device_pd_and_mr_are_imported(run: Run, compiled: Callable[[str], Path]) -> None:
    done = run(compiled("uverbs_imports.c"))
    assert done.returncode == 0, done.stderr


def test_device_memory(run: Run, compiled: Callable[[str], Path]) -> None:
    done = run(compiled("uverbs_device_memory.c"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("check", ["initiator_of_the_gpu", "domains", "shared_target", "events_of_a_shared_target"])
def test_dynamic_connections_and_domains(run: Run, compiled: Callable[[str], Path], check: str) -> None:
    done = run(compiled("uverbs_dc.c"), check)
    assert done.returncode == 0, done.stderr


def test_post_bench_prints_its_figures(run: Run, compiled: Callable[[str], Path]) -> None:
    done = run(compiled("post_bench.c"), 2000)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert set(figures) == {"write_8_bytes_us", "messages_per_second", "write_1_mib_gb_per_second"}
    assert all(value > 0 for value in figures.values())


def test_idle_engine_sleeps_and_wakes(run: Run, compiled: Callable[[str], Path]) -> None:
    """CPU time of the sleeping thread; how fast it wakes depends on what else the machine does."""
    done = run(compiled("idle_bench.c"), 1, 100)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    times = ("doorbell_noticed_us", "store_waits_us", "passive_target_us")
    of_each = [f"{name}{which}" for name in times for which in ("", "_p90", "_least")]
    assert set(figures) == {"idle_percent", *of_each}
    assert figures["idle_percent"] < 2


def test_many_objects(run: Run, compiled: Callable[[str], Path]) -> None:
    """A smaller run than the documents show: memory per object, and none for traffic."""
    done = run(compiled("scale_bench.c"), 256, 4096, 100000)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert set(figures["messages_per_second"]) == {"1", "64", "256"}
    assert figures["growth_bytes"] < 1 << 20


def test_memory_of_idle_objects(run: Run, compiled: Callable[[str], Path]) -> None:
    """What the NIC takes for each, beside libibverbs' and libmlx5's own and the rings."""
    done = run(compiled("memory_bench.c"), 256, 4096)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert 64 < figures["region_library_bytes"] < 256  # they were told apart
    assert 64 < figures["region_bytes"] <= 256
    assert 64 < figures["queue_pair_bytes"] <= 8192


def test_nothing_is_left_in_shared_memory(run: Run) -> None:
    before = set(Path("/dev/shm").glob("gda-sysfs-*"))
    assert run(need("ibv_devinfo")).returncode == 0
    assert set(Path("/dev/shm").glob("gda-sysfs-*")) <= before


def test_a_killed_process_is_swept_by_the_next(environment: dict[str, str], run: Run) -> None:
    script = "import os, sys; os.listdir('/sys/class/infiniband'); print('ready', flush=True); sys.stdin.read()"
    victim = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert victim.stdout is not None
    assert victim.stdout.readline() == "ready\n"
    trees = set(Path("/dev/shm").glob("gda-sysfs-*"))
    victim.kill()
    victim.wait()
    left = {tree for tree in trees if tree.exists()}
    assert left
    assert run(need("ibv_devices")).returncode == 0
    assert not any((tree / "class").exists() for tree in left) or all(_locked(tree) for tree in left if tree.exists())


def _locked(tree: Path) -> bool:
    """Whether a living process holds the tree: another test running at the same time."""
    import fcntl

    with (tree / "lock").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_program_without_verbs_is_not_disturbed(run: Run) -> None:
    before = set(Path("/dev/shm").glob("gda-sysfs-*"))
    done = run("sh", "-c", "echo one; ls / > /dev/null && cat /etc/hostname > /dev/null; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "one\n", "")
    new = set(Path("/dev/shm").glob("gda-sysfs-*")) - before
    assert all(_locked(tree) for tree in new if (tree / "lock").exists())  # of programs that run at the same time


# ---- attach, and the command ----


def test_attach_in_a_running_process(preload: list[str], environment: dict[str, str]) -> None:
    """The import tables are patched after libibverbs looked once and found nothing."""
    script = f"""
import ctypes
verbs, mlx5 = ctypes.CDLL("libibverbs.so.1"), ctypes.CDLL("libmlx5.so.1")
count = ctypes.c_int()
verbs.ibv_get_device_list.restype = ctypes.c_void_p
verbs.ibv_get_device_list(ctypes.byref(count)); before = count.value
nic = ctypes.CDLL({preload[-1].replace("libgda_preload", "libgda_sim")!r})
first, second = nic.gda_sim_attach(), nic.gda_sim_attach()
verbs.ibv_get_device_list(ctypes.byref(count))
print(before, first, second, nic.gda_sim_attached(), count.value)
"""
    clean = {k: v for k, v in environment.items() if k != "LD_PRELOAD"}
    if len(preload) > 1:
        clean["LD_PRELOAD"] = ":".join(preload[:-1])
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean, timeout=DEADLINE_S, text=True, capture_output=True, check=False
    )
    assert done.stdout.split()[1:] == ["0", "0", "1", "1"], done.stderr


def test_attach_without_libibverbs_says_why(preload: list[str], environment: dict[str, str]) -> None:
    script = f"""
import ctypes
nic = ctypes.CDLL({preload[-1].replace("libgda_preload", "libgda_sim")!r})
nic.gda_sim_message.restype = ctypes.c_char_p
print(nic.gda_sim_attach() < 0, nic.gda_sim_message().decode())
"""
    clean = {**environment, "LD_PRELOAD": ":".join(preload[:-1])}
    done = subprocess.run(
        [sys.executable, "-c", script], env=clean, timeout=DEADLINE_S, text=True, capture_output=True, check=False
    )
    assert done.stdout.startswith("True "), done.stderr
    assert "libibverbs" in done.stdout


def test_sim_run_starts_the_program(preload: list[str], environment: dict[str, str]) -> None:
    library = preload[-1].replace("libgda_preload", "libgda_sim")
    clean = {k: v for k, v in environment.items() if k != "LD_PRELOAD"}
    done = subprocess.run(
        [sys.executable, "-m", "gda", "sim", "run", "--nics", "2", "--ports", "3", "--", need("ibv_devinfo")], cwd=ROOT,
        env={**clean, "GDA_SIM_LIBRARY": library}, timeout=DEADLINE_S, text=True, capture_output=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"hca_id:\s+(\w+)|phys_port_cnt:\s+(\d)", done.stdout) == [
        ("mlx5_0", ""), ("", "3"), ("mlx5_1", ""), ("", "3"),
    ]  # fmt: skip


def test_sim_run_says_what_is_missing(preload: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_SIM_LIBRARY", preload[-1].replace("libgda_preload", "libgda_sim"))
    with pytest.raises(ArgumentError, match="needs a program"):
        sim.run(["--"])
    with pytest.raises(UnavailableError, match="no-such-program"):
        sim.run(["no-such-program"])
    with pytest.raises(ArgumentError, match="GDA_SIM_PORTS='5' is not one of 1, 2, 3, 4"):
        sim.run(["ibv_devices"], ports=5)
    monkeypatch.setenv("GDA_SIM_LIBRARY", "/nowhere/libgda_sim.so")
    with pytest.raises(UnavailableError, match=r"/nowhere/libgda_sim\.so"):
        sim.run(["ibv_devices"])
