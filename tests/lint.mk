# Formatting and lint; included by the Makefile.

.PHONY: api deps-lint fmt lint lint-long

# promtool comes with Debian's Prometheus server, which is too much to ask of everyone who types `make test`.
DEPS_LINT := clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev libomp-14-dev mandoc prometheus qemu-user systemd
RUFF := ruff==0.17.6

deps-lint: deps-test ## install what lint, tsan and CI need as well
	$(call install,$(DEPS_LINT) $(DEPS_PYTHON))
	$(VENV)
	@.venv/bin/ruff --version 2>/dev/null | grep -qx '$(subst ==, ,$(RUFF))' || .venv/bin/pip install -q -I $(RUFF)

fmt: ## format all C files
	clang-format-14 -i $(C_FILES)

api: ## write server/API.md, from what the daemon says of its interface
	+@$(BUILD) programs
	@$(PYTHON) -B tests/openapi/reference.py $B/aftd >$B/API.md && cp $B/API.md server/API.md

# As the compiler gets them, without the quotes that were for the shell.
LINT_FLAGS = -std=c11 $(subst ',,$(ALL_CPPFLAGS))

lint: deps-lint ## format, include directions, flags that rounding hangs on, headers alone, clang-tidy, manual pages, systemd units; ruff for Python
	@tests/lint/format.sh $(C_FILES)
	@.venv/bin/python tests/lint/rooms.py
	@.venv/bin/python tests/lint/links.py
	@tests/lint/rounding.sh release debug asan tsan cover fuzz arm64
	@tests/lint/headers.sh '$(CC) $(LINT_FLAGS) $(WARNINGS)' $(filter %.h,$(C_FILES))
	@tests/lint/tidy.sh '' '$(LINT_FLAGS)' $(filter-out $(INTRINSIC_SOURCES),$(filter %.c,$(C_FILES)))
	@tests/lint/man.sh $(PAGES)
	@tests/lint/units.sh
	@.venv/bin/ruff check --quiet --no-cache --config weights/train/pyproject.toml weights tests deploy

# Without what asks for Annex K (memcpy_s), which glibc does not have, and what orders fields by size, not by meaning.
ANALYZER := -*,clang-analyzer-*,-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling,-clang-analyzer-optin.performance.Padding
ANALYZED = $(filter-out $(INTRINSIC_SOURCES),$(filter %.c,$(C_FILES)))
TELLING := config/status.c server/cli/common.c # define what analyzer.h has macros for

lint-long: deps-lint ## clang's analyzer (3 minutes)
	@tests/lint/tidy.sh '$(ANALYZER)' '$(LINT_FLAGS)' $(TELLING)
	@tests/lint/tidy.sh '$(ANALYZER)' '$(LINT_FLAGS) -include tests/lint/analyzer.h' $(filter-out $(TELLING),$(ANALYZED))
