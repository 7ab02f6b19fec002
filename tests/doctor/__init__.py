# SPDX-License-Identifier: Apache-2.0
"""doctor, on machines that are played and on this one."""
