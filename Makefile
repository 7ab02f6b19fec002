# SPDX-License-Identifier: Apache-2.0
# make demo      set up what is missing, then one put from a kernel to its completion
# make test      set up what is missing, then checks, tests and a short sanitizer pass (WORKERS=4: files of tests that
#                run at once, where pytest-xdist is there)
# make conformance   other people's programs and tests on the software NIC, a row for each suite
#                    (SUITE="perftest ucx" some of them, ONLY="ib_send*" some cases, JSON=FILE every result)
# make test-gpu-stacks   NVSHMEM and NCCL, unmodified, on the software NIC and real GPUs; "not run" without them (JSON=FILE)
# make fuzz      hostile input for packets, commands and ioctls (SECONDS=60 for each, TARGET=packet)
# make docs      reference, guide and how-tos as HTML in build/docs (OUT=FOLDER another place); read it with any browser
# make check     ruff, mypy, cython-lint and clang-format only
# make sanitize  the tests with the software NIC and device code under ASan with UBSan, then TSan
# make clean     remove everything built, also .venv
.PHONY: demo test conformance test-gpu-stacks fuzz docs check sanitize clean

export PYTHONPATH := $(CURDIR)
RUN = "$$(cat build/python)"
WORKERS = 2

demo:
	@sh prepare.sh demo
	@$(RUN) -m gda demo

test:
	@sh prepare.sh test
	@$(MAKE) --no-print-directory check
	@$(RUN) -m pytest $$($(RUN) -c "import xdist" 2>/dev/null && printf %s "-n $(WORKERS) --dist loadfile")

conformance:
	@sh prepare.sh conformance
	@$(RUN) -m tests.conformance $(SUITE) $(if $(ONLY),--only "$(ONLY)") $(if $(JSON),--json $(JSON))

test-gpu-stacks:
	@sh prepare.sh demo
	@$(RUN) -m tests.gpu_stacks $(if $(ONLY),--only "$(ONLY)") $(if $(JSON),--json $(JSON))

fuzz:
	@sh prepare.sh test
	@$(RUN) -m tests.fuzz $(TARGET) $(if $(SECONDS),--seconds $(SECONDS))

docs:
	@sh prepare.sh docs
	@$(RUN) -m docs.reference $(OUT)

check:
	@[ -e build/python ] || sh prepare.sh test
	@sh check.sh

sanitize:
	@sh prepare.sh test
	@sh sanitize.sh

clean:
	rm -rf .venv build dist gda.egg-info gda/lib gda/include gda/_verbs.c gda/_cuda.c gda/_proxy.cpp gda/_rdmacm.c gda/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
