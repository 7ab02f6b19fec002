# SPDX-License-Identifier: Apache-2.0
"""The Linux kernel's own soft-RoCE in a virtual machine, as judge and peer of the software NIC."""
