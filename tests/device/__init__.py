# SPDX-License-Identifier: Apache-2.0
"""The device library on the CPU target, against queues in plain memory: the test plays the NIC."""
