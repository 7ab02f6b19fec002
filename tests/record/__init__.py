# SPDX-License-Identifier: Apache-2.0
"""Records of a NIC: what they hold, and how two are compared."""
