// SPDX-License-Identifier: Apache-2.0
// What the files of the tree say: a PCI device for each NIC with its InfiniBand ports, and class directories full of
// links to them. Used by sysfs.cc only.
#pragma once

#include <string>

namespace sim::uverbs::sysfs {

constexpr unsigned device_major = 231, first_device_minor = 192;  // the uverbs devices of every Linux

// The module of NVIDIA's driver by which a NIC registers GPU memory by its addresses, as this one does: NVSHMEM and
// NCCL look for it before they try.
constexpr const char* peer_memory = "module/nvidia_peermem";

// What a NIC is called.
struct Names {
    explicit Names(int nic);
    std::string pci;            // 0000:11:00.0
    std::string pci_directory;  // below /sys, without a slash at either end
    std::string ib;             // mlx5_0
    std::string verbs;          // uverbs0
};

// The whole tree in the directory `root`. False: something could not be written.
bool write_tree(const std::string& root);

// Only what can change while it is in use: state, rate, addresses, network device.
bool write_networks(const std::string& root);

}  // namespace sim::uverbs::sysfs
