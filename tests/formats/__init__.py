# SPDX-License-Identifier: Apache-2.0
"""Formats: golden bytes, round trips, every compiler's answer, and the outside parties that judge the declaration."""
