# SPDX-License-Identifier: Apache-2.0
"""Ranks, teams, windows, signals and collectives."""
