// SPDX-License-Identifier: Apache-2.0
// See sysfs_tree.h. Programs find the PCI device by realpath(), so the links must be real.
// Source: Documentation/ABI/stable/sysfs-class-infiniband and sysfs-class-net of Linux, and what the libraries open.
#include "sim/uverbs/sysfs_tree.h"

#include <fcntl.h>
#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "sim/uverbs/counters.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/port.h"
#include "sim/uverbs/real.h"

namespace sim::uverbs::sysfs {
namespace {

class Writer {
   public:
    explicit Writer(std::string root) : root_(std::move(root)) {}

    void directory(const std::string& path) {
        for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
            mkdir((root_ + "/" + path.substr(0, slash)).c_str(), 0755);
        mkdir((root_ + "/" + path).c_str(), 0755);
        here_ = path;
    }
    // A file in the directory made last, or its new content; a newline is added as sysfs does.
    __attribute__((format(printf, 3, 4))) void file(const char* name, const char* format, ...) {
        va_list arguments;
        va_start(arguments, format);
        char text[512];
        int length = vsnprintf(text, sizeof text - 1, format, arguments);
        va_end(arguments);
        text[length++] = '\n';
        // Renamed into place: a reader sees the old or the new content.
        const std::string path = root_ + "/" + here_ + "/" + name, made = path + ".new";
        int fd = real::open(made.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        ok_ = ok_ && fd >= 0 && real::write(fd, text, static_cast<size_t>(length)) == length;
        if (fd >= 0) real::close(fd);
        ok_ = rename(made.c_str(), path.c_str()) == 0 && ok_;
    }
    void no_file(const char* name) { unlink((root_ + "/" + here_ + "/" + name).c_str()); }
    void link(const std::string& name, const std::string& target) {
        ok_ = symlink(target.c_str(), (root_ + "/" + here_ + "/" + name).c_str()) == 0 && ok_;
    }
    bool ok() const { return ok_; }

   private:
    std::string root_, here_;
    bool ok_ = true;
};

std::string quads(const uint8_t (&gid)[16]) {
    char text[40];
    char* end = text;
    for (int i = 0; i < 16; i += 2) end += snprintf(end, 6, "%s%02x%02x", i ? ":" : "", gid[i], gid[i + 1]);
    return text;
}

void write_pci(Writer& w, const Names& names) {
    w.directory(names.pci_directory);
    w.file("vendor", "0x%04x", identity::pci_vendor);
    w.file("device", "0x%04x", identity::pci_device);
    w.file("subsystem_vendor", "0x%04x", identity::pci_vendor);
    w.file("subsystem_device", "0x%04x", identity::pci_subsystem);
    w.file("class", "0x020700");
    w.file("revision", "0x00");
    w.file("numa_node", "0");
    const long cpus = sysconf(_SC_NPROCESSORS_CONF);
    std::string mask;  // words of 32 processors, the highest first
    for (long word = (cpus - 1) / 32; word >= 0; --word) {
        char text[16];
        const long used = std::min(cpus - word * 32, 32l);
        snprintf(text, sizeof text, "%s%08x", mask.empty() ? "" : ",", used == 32 ? ~0u : (1u << used) - 1);
        mask += text;
    }
    w.file("local_cpulist", "0-%ld", cpus - 1);
    w.file("local_cpus", "%s", mask.c_str());
    w.file("current_link_speed", "32.0 GT/s PCIe");
    w.file("max_link_speed", "32.0 GT/s PCIe");
    w.file("current_link_width", "16");
    w.file("max_link_width", "16");
    w.file("modalias", "pci:v%08Xd%08Xsv%08Xsd%08Xbc02sc07i00", identity::pci_vendor, identity::pci_device,
           identity::pci_vendor, identity::pci_subsystem);
    w.file("uevent", "DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_ID=%04X:%04X\nPCI_SLOT_NAME=%s", identity::pci_vendor,
           identity::pci_device, names.pci.c_str());
}

std::string port_directory(const Names& names, uint32_t number) {
    return names.pci_directory + "/infiniband/" + names.ib + "/ports/" + std::to_string(number);
}

void write_port(Writer& w, const Names& names, uint32_t number) {
    const std::string port = port_directory(names, number);
    w.directory(port);
    w.file("link_layer", "Ethernet");
    w.file("lid", "0x0");
    w.file("sm_lid", "0x0");
    w.file("lid_mask_count", "0");
    w.file("sm_sl", "0");
    w.file("cap_mask", "0x04010000");
    w.directory(port + "/pkeys");
    w.file("0", "0xffff");
    for (const char* directory : {"counters", "hw_counters"}) {
        w.directory(port + "/" + directory);
        for (const char* name : counters::names(directory)) w.file(name, "0");
    }
}

// The network device behind a port, as the addresses name it: one of this host.
void write_netdev(Writer& w, const Names& names, const std::string& netdev, const Nic& nic, uint32_t port) {
    uint8_t mac[6];
    nic->mac(mac, port);
    w.directory(names.pci_directory + "/net/" + netdev);
    w.file("mtu", "%u", nic->link_mtu(port));
    w.file("operstate", "%s", nic->link_up(port) ? "up" : "down");
    w.file("carrier", "%d", nic->link_up(port));
    w.file("dev_port", "%u", port - 1);
    w.file("ifindex", "%u", if_nametoindex(netdev.c_str()));
    w.file("address", "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
}

// `netdevs`: those that a port before this one has; all ports may share the loopback device.
void write_network_of_port(Writer& w, const Nic& nic, const Names& names, uint32_t of, std::set<std::string>* netdevs) {
    const std::string port = port_directory(names, of);
    w.directory(port);
    w.file("state", "%s", nic->link_up(of) ? "4: ACTIVE" : "1: DOWN");
    w.file("phys_state", "%s", nic->link_up(of) ? "5: LinkUp" : "3: Disabled");
    w.file("rate", "400 Gb/sec (4X NDR)");
    static const uint8_t empty[16] = {};
    std::set<std::string> mine;
    for (int i = 0; i < Device::gid_count(); ++i) {
        uint8_t gid[16];
        nic->gid(i, gid, of);
        const std::string number = std::to_string(i);
        w.directory(port + "/gids");
        w.file(number.c_str(), "%s", quads(gid).c_str());
        const bool there = memcmp(gid, empty, sizeof gid) != 0;
        // Of an empty entry the kernel has these files, too, and refuses to read them; here they are absent.
        w.directory(port + "/gid_attrs/types");
        if (there)
            w.file(number.c_str(), "%s", nic->gid_is_version1(i, of) ? "IB/RoCE v1" : "RoCE v2");
        else
            w.no_file(number.c_str());
        const std::string netdev = there ? netdev_of(gid) : std::string();
        w.directory(port + "/gid_attrs/ndevs");
        if (netdev.empty())
            w.no_file(number.c_str());
        else
            w.file(number.c_str(), "%s", netdev.c_str());
        if (netdev.empty() || netdevs->count(netdev)) continue;
        write_netdev(w, names, netdev, nic, of);
        mine.insert(netdev);
    }
    netdevs->merge(mine);
}

void write_network(Writer& w, int index) {
    const Nic nic(index);
    if (!nic) return;
    const Names names(index);
    std::set<std::string> netdevs;
    for (uint32_t port = 1; port <= Nic::limits().ports; ++port) write_network_of_port(w, nic, names, port, &netdevs);
}

void write_nic(Writer& w, int index) {
    const Names names(index);
    write_pci(w, names);
    const std::string device = names.pci_directory + "/infiniband/" + names.ib;
    const std::string verbs = names.pci_directory + "/infiniband_verbs/" + names.verbs, up = "../../../" + names.pci;
    const uint64_t guid = identity::node_guid(index);
    char guid_text[24];
    snprintf(guid_text, sizeof guid_text, "%04x:%04x:%04x:%04x", static_cast<unsigned>(guid >> 48),
             static_cast<unsigned>(guid >> 32 & 0xffff), static_cast<unsigned>(guid >> 16 & 0xffff),
             static_cast<unsigned>(guid & 0xffff));
    w.directory(device);
    w.file("node_type", "1: CA");
    w.file("node_guid", "%s", guid_text);
    w.file("sys_image_guid", "%s", guid_text);
    w.file("fw_ver", "%u.%u.%04u", identity::firmware_major, identity::firmware_minor, identity::firmware_sub);
    w.file("hw_rev", "0");
    w.file("hca_type", "MT4129");
    w.file("board_id", "GDA_SOFTWARE");
    w.file("node_desc", "gda software ConnectX-7");
    w.link("device", up);
    for (uint32_t port = Nic::limits().ports; port; --port) write_port(w, names, port);  // as in write_tree
    write_network(w, index);
    w.directory(verbs);
    w.file("ibdev", "%s", names.ib.c_str());
    w.file("dev", "%u:%u", device_major, first_device_minor + static_cast<unsigned>(index));
    w.file("abi_version", "1");
    w.link("device", up);
    w.directory("class/infiniband");
    w.link(names.ib, "../../" + device);
    w.directory("class/infiniband_verbs");
    w.link(names.verbs, "../../" + verbs);
    w.directory("bus/pci/devices");
    w.link(names.pci, "../../../" + names.pci_directory);
}

}  // namespace

Names::Names(int nic) {
    char text[32];
    snprintf(text, sizeof text, "0000:%02x:00.0", 0x11 + nic);
    pci = text;
    pci_directory = "devices/pci0000:10/" + pci;
    ib = "mlx5_" + std::to_string(nic);
    verbs = "uverbs" + std::to_string(nic);
}

bool write_tree(const std::string& root) {
    Writer w(root);
    // Backwards: a memory file system lists what was made last first, and programs take the first they see.
    for (int i = Nic::count() - 1; i >= 0; --i) {
        if (!Nic(i)) return false;
        write_nic(w, i);
    }
    w.directory("class/infiniband_verbs");
    w.file("abi_version", "6");
    w.directory(peer_memory);
    w.file("version", "580.0");
    return w.ok();
}

bool write_networks(const std::string& root) {
    Writer w(root);
    for (int i = 0; i < Nic::count(); ++i) write_network(w, i);
    return w.ok();
}

}  // namespace sim::uverbs::sysfs
