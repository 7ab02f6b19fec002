# SPDX-License-Identifier: Apache-2.0
"""Readers and measurers. Nothing else in the package imports them."""
