# SPDX-License-Identifier: Apache-2.0
"""What all ranks of a team do together, a file for each collective. Reading order: barrier, collective (what the others
have in common).

The steps themselves are in cuda/gda/collectives/; each file here has them as data, too, to read and to test against.
Document: docs/programs.md.
"""
