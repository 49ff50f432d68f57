# aftd: `make help` lists what there is to do.

# ---- what is built -------------------------------------------------------------------------------------------------

# VARIANT chooses flags and folder: release (build/), debug, asan, tsan, fuzz, arm64 (build/VARIANT/). Objects never mix.
VARIANT ?= release
VERSION := 0.1.0
B := $(if $(filter release,$(VARIANT)),build,build/$(VARIANT))

PREFIX ?= /usr/local
DESTDIR ?=

PKGS := libmicrohttpd jansson libjpeg libpng libwebp libwebpdemux libexif nettle gnutls
CLI_PKGS := libcurl # of aft alone
LIBRARY_SOURCES := $(wildcard config/*.c weights/*.c engine/*.c engine/kernels/*.c engine/mixers/*.c)
# What aft shares with the daemon beyond the library; the rest of server/ is the daemon's own.
COMMON_SOURCES := server/archive.c server/arithmetic_coder.c server/drawing.c server/explanation.c server/keys_file.c server/logits.c server/model_identity.c $(filter-out server/picture_lane.c,$(wildcard server/picture*.c)) server/png.c server/precision.c server/spin.c server/stream_coding.c server/text.c
DAEMON_SOURCES := $(filter-out server/main.c $(COMMON_SOURCES),$(wildcard server/*.c))
CLI_SOURCES := $(filter-out server/cli/main.c,$(wildcard server/cli/*.c))
TEST_SUPPORT := $(wildcard tests/support/*.c)
TESTS := $(patsubst tests/%.c,$B/tests/%,$(wildcard tests/*/test_*.c))
C_FILES := $(wildcard config/*.[ch] weights/*.[ch] engine/*.[ch] engine/*/*.[ch] server/*.[ch] server/*/*.[ch] tests/*/*.[ch])

# ---- flags ---------------------------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
ALL_CPPFLAGS = -I. -D_GNU_SOURCE -DAFTD_VERSION='"$(VERSION)"' -DAFTD_DATADIR='"$(PREFIX)/share/aftd"' $(HARDEN_CPP) $(PKG_CFLAGS) $(CPPFLAGS)
ALL_CFLAGS = -std=c11 $(WARNINGS) $(OPTIMISE) $(SANITISE) $(OPENMP) -fPIE -pthread $(CFLAGS)
ALL_LDFLAGS = -pie -Wl,-z,relro,-z,now -Wl,--as-needed $(SANITISE) $(OPENMP) -pthread $(LDFLAGS)
PKG_CONFIG := pkg-config
PKG_CFLAGS = $(shell $(PKG_CONFIG) --cflags $(PKGS) $(CLI_PKGS))
LIBS = $(shell $(PKG_CONFIG) --libs $(PKGS)) -lopenblas -lm
CLI_LIBS = $(shell $(PKG_CONFIG) --libs $(CLI_PKGS))
TEST_LIBS = $(shell $(PKG_CONFIG) --libs cmocka) $(CLI_LIBS) -ldl

ifneq ($(filter release arm64,$(VARIANT)),)
  OPTIMISE := -O2 -g
  HARDEN_CPP := -D_FORTIFY_SOURCE=2
  SANITISE := -fstack-protector-strong
  OPENMP := -fopenmp
else ifeq ($(VARIANT),debug)
  OPTIMISE := -O0 -g3
  OPENMP := -fopenmp
else ifeq ($(VARIANT),asan)
  OPTIMISE := -O1 -g -fno-omit-frame-pointer
  SANITISE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
  OPENMP := -fopenmp
else ifeq ($(VARIANT),tsan)
  # ThreadSanitizer does not see gcc's libgomp synchronise and reports races that are none; LLVM's libomp tells it, through
  # the Archer tool that tests/run.sh loads.
  CC := clang-14
  OPTIMISE := -O1 -g -fno-omit-frame-pointer
  SANITISE := -fsanitize=thread
  OPENMP := -fopenmp
else ifeq ($(VARIANT),cover)
  OPTIMISE := -O0 -g
  SANITISE := --coverage
  OPENMP := -fopenmp
else ifeq ($(VARIANT),fuzz)
  CC := clang-14
  OPTIMISE := -O1 -g -fno-omit-frame-pointer
  SANITISE := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
  OPENMP :=
else
  $(error VARIANT is $(VARIANT); expected release, debug, asan, tsan, cover, fuzz or arm64)
endif
# The release for arm64, on any machine: with Debian's cross compiler and its packages unpacked (make deps-arm64).
SYSROOT := build/arm64-sysroot
ifeq ($(VARIANT),arm64)
  CC := aarch64-linux-gnu-gcc --sysroot=$(CURDIR)/$(SYSROOT)
  PKG_CONFIG := PKG_CONFIG_SYSROOT_DIR=$(SYSROOT) PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/aarch64-linux-gnu/pkgconfig:$(SYSROOT)/usr/share/pkgconfig pkg-config
endif

# The element-wise kernels are plain C that the compiler vectorises; on x86-64 they are compiled three times, and
# engine/kernels/dispatch.c picks one at start. Nothing else may use instructions beyond the architecture's baseline.
# What engine/kernels/dispatch.c looks for, no more.
AVX2_FLAGS := -mavx2 -mfma
AVX512_FLAGS := $(AVX2_FLAGS) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ifeq ($(VARIANT),tsan)
  # ThreadSanitizer sees accesses of at most 16 bytes: the tables keep their names and use narrow registers.
  AVX2_FLAGS :=
  AVX512_FLAGS :=
  PLAIN_FLAGS := -DKERNELS_PLAIN
endif
ISA_FLAGS := # of one file; see "define compile"
KERNEL_FLAGS := -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast -Wno-psabi
# By intrinsics: avx2_*.c and avx512_*.c for x86-64, neon*.c for arm64.
INTRINSIC_SOURCES := $(wildcard engine/kernels/avx*.c engine/kernels/neon*.c)
MACHINE := $(shell $(CC) -dumpmachine)
ifneq ($(filter x86_64-%,$(MACHINE)),)
  KERNEL_OBJECTS := $(if $(PLAIN_FLAGS),,$(patsubst %.c,$B/%.o,$(wildcard engine/kernels/avx*.c))) \
      $(foreach isa,avx2 avx512,$(patsubst %.c,$B/%-$(isa).o,$(wildcard engine/kernels/portable_*.c)))
else ifneq ($(filter aarch64-%,$(MACHINE)),)
  KERNEL_OBJECTS := $(patsubst %.c,$B/%.o,$(if $(PLAIN_FLAGS),engine/kernels/neon.c,$(wildcard engine/kernels/neon*.c)))
endif

LIBRARY_OBJECTS := $(patsubst %.c,$B/%.o,$(filter-out $(INTRINSIC_SOURCES),$(LIBRARY_SOURCES))) $(KERNEL_OBJECTS) $(COMMON_SOURCES:%.c=$B/%.o)
DAEMON_OBJECTS := $(DAEMON_SOURCES:%.c=$B/%.o)
CLI_OBJECTS := $(CLI_SOURCES:%.c=$B/%.o)
SUPPORT_OBJECTS := $(TEST_SUPPORT:%.c=$B/%.o)
# Fuzz targets link the parsers of what comes from outside, and nothing that computes with it.
FUZZERS := $(patsubst tests/fuzz/%.c,$B/%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_OBJECTS := $(patsubst %.c,$B/%.o,$(wildcard config/*.c weights/*.c) engine/image.c engine/sampler.c \
    $(filter-out server/drawing.c server/explanation.c server/picture_fit.c server/precision.c server/stream_coding.c,$(COMMON_SOURCES)) server/fields.c \
    server/generate_request.c server/inference_request.c server/multipart.c server/openai_request.c server/request_bytes.c server/request_json.c server/state_blob.c \
    server/stream_snapshot.c tests/fuzz/fuzz.c tests/fuzz/generation.c)
FUZZ_SECONDS ?= 20

# Commands are shown in short; V=1 shows them whole.
ifeq ($(V),1)
  say =
  Q :=
else
  say = @echo "  $(1)  $@"
  Q := @
endif

# ---- Debian packages -------------------------------------------------------------------------------------------------

DEPS_BUILD := gcc libc6-dev make pkg-config libmicrohttpd-dev libjansson-dev libopenblas-openmp-dev libjpeg62-turbo-dev \
    libpng-dev libwebp-dev libexif-dev nettle-dev libgnutls28-dev libcurl4-openssl-dev
DEPS_TEST := libcmocka-dev xz-utils openssl
# promtool comes with Debian's Prometheus server, which is too much to ask of everyone who types `make test`.
DEPS_BENCH := libcmocka-dev python3 # the former for what tests/bench shares with the tests
DEPS_LINT := clang-14 clang-format-14 clang-tidy-14 libclang-rt-14-dev libomp-14-dev prometheus qemu-user
DEPS_ARM64 := gcc-aarch64-linux-gnu qemu-user
DEPS_PYTHON := python3-venv
DEPS_PAGE := chromium fonts-dejavu-core # without a font there is no text to look at
DEPS_PEERS := g++ python3-dev # torch.compile writes C++

# $(call install,PACKAGES): what is missing of them, as root; otherwise say what to type.
define install
@if ! command -v dpkg-query >/dev/null; then echo "not a Debian system; needed are the equivalents of: $(1)"; exit 0; fi; \
missing=$$(for p in $(1); do \
    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
if [ -z "$$missing" ]; then exit 0; fi; \
command="apt-get install -y --no-install-recommends $$(echo $$missing)"; \
if [ "$$(id -u)" != 0 ]; then echo "packages are missing; as root, run:"; echo "  $$command"; exit 1; fi; \
export DEBIAN_FRONTEND=noninteractive; apt-get update -q && $$command
endef

# ---- Python ----------------------------------------------------------------------------------------------------------

# Training and its tests need PyTorch; .venv has what the system's Python lacks of that. `make clean` leaves it.
PYTHON = $(if $(wildcard .venv/bin/pip),.venv/bin/python,python3)
# For Linux PyPI's PyTorch brings gigabytes of CUDA along. Where PIP_EXTRA_INDEX_URL names PyTorch's own index of builds
# without it, TORCH=torch==2.13.0+cpu takes one of those.
TORCH ?= torch==2.13.0
RUFF := ruff==0.17.6
OPENAPI := schemathesis==4.32.5 openapi-spec-validator==0.9.0 pillow
PAGE := playwright==1.65.2 axe-playwright-python==0.1.8 pytest==9.2.0
PEERS := onnx==1.23.2 onnxruntime==1.31.1
# What tests/clients talks to the daemon with, as others publish it.
CLIENTS := pytest openai==3.54.0 lm-eval[api]==0.4.13 transformers==5.23.0 tritonclient[http]==2.73.0
NODE_CLIENTS := openai@7.57.0
VENV = @[ -x .venv/bin/pip ] || python3 -m venv --clear --system-site-packages .venv

# ---- targets ---------------------------------------------------------------------------------------------------------

.PHONY: all help deps deps-test deps-bench deps-lint deps-arm64 deps-train deps-openapi deps-clients deps-peers deps-page run test \
    test-built test-cpus test-arm64 test-openapi test-page check bench bench-mixers bench-http bench-peers fmt lint cover asan tsan \
    fuzz fuzz-built install uninstall dist clean
.DELETE_ON_ERROR:
.SECONDARY:
# Sub-makes of one command line build with both cores unless -j says otherwise.
JOBS := $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))

all: $B/aftd $B/aft ## build build/aftd and build/aft (default)

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16

$B/aftd: $B/server/main.o $(DAEMON_OBJECTS) $(LIBRARY_OBJECTS)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$B/aft: $B/server/cli/main.o $(CLI_OBJECTS) $(LIBRARY_OBJECTS)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(CLI_LIBS) $(LIBS)

$B/tests/%: $B/tests/%.o $(SUPPORT_OBJECTS) $(CLI_OBJECTS) $(DAEMON_OBJECTS) $(LIBRARY_OBJECTS)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LIBS)

# For the daemon to preload, in the test that needs it.
$B/tests/scarce_memory.so: tests/preload/scarce_memory.c tests/preload/scarce_memory.h Makefile
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -I. -D_GNU_SOURCE -std=c11 $(WARNINGS) -O2 -g -fPIC -shared -o $@ $<

$B/tests/server/test_http_memory $B/tests/server/test_http_memory_models: | $B/tests/scarce_memory.so

$B/fuzz_%: $B/tests/fuzz/fuzz_%.o $(FUZZ_OBJECTS)
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

# portable_*.c is compiled as it is and again as -avx2 and -avx512.
define compile
@mkdir -p $(@D)
$(call say,CC  )
$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ISA_FLAGS) -MMD -MP -c -o $@ $<
endef

$B/engine/kernels/portable_%.o: ISA_FLAGS = $(KERNEL_FLAGS) -DKERNELS_ISA=baseline
$B/engine/kernels/portable_%-avx2.o: ISA_FLAGS = $(KERNEL_FLAGS) $(AVX2_FLAGS) -DKERNELS_ISA=avx2
$B/engine/kernels/portable_%-avx512.o: ISA_FLAGS = $(KERNEL_FLAGS) $(AVX512_FLAGS) -DKERNELS_ISA=avx512
$B/engine/kernels/avx2_%.o: ISA_FLAGS = $(KERNEL_FLAGS) $(AVX2_FLAGS) -DKERNELS_ISA=avx2
$B/engine/kernels/avx512_vnni.o $B/engine/kernels/avx512_vnni_peak.o: ISA_FLAGS = $(KERNEL_FLAGS) $(AVX512_FLAGS) -mavx512vnni -DKERNELS_ISA=avx512
$B/engine/kernels/avx512_bf16.o $B/engine/kernels/avx512_bf16_peak.o: ISA_FLAGS = $(KERNEL_FLAGS) $(AVX512_FLAGS) -mavx512bf16 -DKERNELS_ISA=avx512
# Scheduled before registers are given out, loads move ahead until some of 24 sums are on the stack.
$(patsubst %.c,$B/%.o,$(wildcard engine/kernels/neon*.c)): ISA_FLAGS = $(KERNEL_FLAGS) -fno-schedule-insns $(NEON_FLAGS) -DKERNELS_ISA=baseline
$B/engine/kernels/neon_dotprod.o $B/engine/kernels/neon_dotprod_peak.o: NEON_FLAGS := -march=armv8.2-a+dotprod
$B/engine/kernels/neon_bf16.o $B/engine/kernels/neon_bf16_peak.o: NEON_FLAGS := -march=armv8.2-a+bf16
ifeq ($(VARIANT),asan)
  # A check at every load makes products eight times slower, and the tests of whole daemons with them. What they read and
  # write is what their callers hand them, whose own accesses are checked.
  PRODUCT_SOURCES := engine/kernels/portable_gemm engine/kernels/portable_gemm-avx2 engine/kernels/portable_gemm-avx512 \
      engine/kernels/avx2_int8 engine/kernels/avx512_vnni engine/kernels/avx512_bf16 \
      engine/kernels/neon engine/kernels/neon_dotprod engine/kernels/neon_bf16
  $(PRODUCT_SOURCES:%=$B/%.o): SANITISE :=
endif
$B/engine/kernels/dispatch.o $B/engine/kernels/peak.o: ISA_FLAGS = $(PLAIN_FLAGS)

$B/server/api_page.o: $(wildcard server/web/*) weights/models/cifar10-aft-conv/sample.jpg

$B/%-avx2.o: %.c Makefile
	$(compile)

$B/%-avx512.o: %.c Makefile
	$(compile)

$B/%.o: %.c Makefile
	$(compile)

# Its text is part of the program.
$B/server/openapi.o: server/openapi.json

-include $(shell find $B -type f -name '*.d' 2>/dev/null)

deps: ## install what the build needs (Debian; as root)
	$(call install,$(DEPS_BUILD))

deps-test: deps ## install what the tests need as well
	$(call install,$(DEPS_TEST))

deps-bench: deps ## install what bench, bench-mixers and bench-http need as well
	$(call install,$(DEPS_BENCH))

deps-lint: deps-test ## install what lint, tsan and CI need as well
	$(call install,$(DEPS_LINT) $(DEPS_PYTHON))
	$(VENV)
	@.venv/bin/ruff --version 2>/dev/null | grep -qx '$(subst ==, ,$(RUFF))' || .venv/bin/pip install -q -I $(RUFF)

deps-arm64: deps-test ## install what building for arm64 and running that here need; Debian's arm64 packages in build/
	$(call install,$(DEPS_ARM64))
	@tests/arm64/sysroot.sh $(SYSROOT) $(filter %-dev,$(DEPS_BUILD) $(DEPS_TEST))

deps-train: ## install what training and its tests need, PyTorch above all, in .venv
	$(call install,$(DEPS_PYTHON))
	$(VENV)
	@.venv/bin/pip install $(TORCH)
	@.venv/bin/pip install -e 'weights/train[test]'

deps-openapi: ## install what holds the daemon's answers against its /openapi.json, in .venv
	$(call install,$(DEPS_PYTHON))
	$(VENV)
	@.venv/bin/pip install -q $(OPENAPI)

deps-clients: ## install the clients of others that tests/clients uses, in .venv and, where there is npm, in build/clients
	$(call install,$(DEPS_PYTHON))
	$(VENV)
	@.venv/bin/python -m pip install -q $(CLIENTS)
	@if ! command -v node >/dev/null || ! command -v npm >/dev/null; then \
	    echo "node and npm (20 or later) are missing: the tests with JavaScript's client will be skipped"; \
	elif ! grep -qs '"version": "$(lastword $(subst @, ,$(NODE_CLIENTS)))"' build/clients/node_modules/openai/package.json; then \
	    mkdir -p build/clients && npm install --prefix build/clients --silent --no-audit --no-fund $(NODE_CLIENTS); fi

deps-peers: deps-train ## install what bench-peers measures beside PyTorch as well
	$(call install,$(DEPS_PEERS))
	@.venv/bin/pip install $(PEERS)

deps-page: deps ## install what the tests of the page need: a browser, and what drives it in .venv
	$(call install,$(DEPS_PYTHON) $(DEPS_PAGE))
	$(VENV)
	@.venv/bin/python -m pip install -q $(PAGE)

run: deps ## install what is missing, build, serve the shipped models on 127.0.0.1:8080
	@$(MAKE) --no-print-directory $(JOBS) all
	@echo
	@echo "Try, from another terminal in this folder:"
	@echo "  curl --data-binary @weights/models/cifar10-aft-conv/sample.jpg 'http://127.0.0.1:8080/classify?model=cifar10-aft-conv'"
	@echo "  curl -N -d '{\"prompt\": \"The history of \", \"stream\": true}' http://127.0.0.1:8080/generate"
	@echo "  curl http://127.0.0.1:8080/metrics"
	@echo "or open http://127.0.0.1:8080/ in a browser."
	@echo "Ctrl-C ends the daemon."
	@echo
	@build/aftd --listen-address 127.0.0.1 --listen-port 8080 --models-dir weights/models

test: deps-test ## install what is missing, build, run all tests; some after `make deps-train`, `make deps-clients`
	@$(MAKE) --no-print-directory $(JOBS) test-built

test-built: all $(TESTS)
	@PYTHON=$(PYTHON) tests/run.sh $B/tests $(if $(filter release,$(VARIANT)),tests/train tests/clients)

check: lint test ## lint and test

test-openapi: deps-openapi ## some 5,000 made-up requests: is every answer as /openapi.json says? (5 minutes)
	@$(MAKE) --no-print-directory $(JOBS) all
	@.venv/bin/python tests/openapi/run.py --daemon $B/aftd $(OPENAPI_FLAGS)

bench: deps-bench ## how fast this machine is, and what of that the shipped models and the papers' sizes reach (8 minutes)
	@$(MAKE) --no-print-directory $(JOBS) all build/tests/bench/streams
	@build/aft bench --roofline
	@for model in weights/models/*/; do echo && build/aft bench $$model --runs 21 || exit 1; done
	@echo && tests/bench/targets.py
	@echo && tests/bench/serving.py --model l24

bench-mixers: deps-bench ## what each token mixer costs, at 256, 1024 and 4096 bytes
	@$(MAKE) --no-print-directory $(JOBS) all
	@tests/bench/mixers.py

bench-http: deps-bench ## what 64 streams through HTTP reach of what they reach in the process, and what a long prompt does to them
	@$(MAKE) --no-print-directory $(JOBS) all build/tests/bench/streams
	@tests/bench/serving.py $(HTTP_FLAGS)

bench-peers: all ## aftd beside PyTorch, ONNX Runtime and OpenBLAS, some 8 minutes; PEERS_FLAGS=--quick takes 2
	@$(PYTHON) -c 'import torch, onnx, onnxruntime' || echo "for what is missing of the peers: make deps-peers"
	@PYTHONPATH=weights/train $(PYTHON) tests/bench/peers.py $(PEERS_FLAGS)

fmt: ## format all C files
	clang-format-14 -i $(C_FILES)

# As the compiler gets them, without the quotes that were for the shell.
LINT_FLAGS = -std=c11 $(subst ',,$(ALL_CPPFLAGS))

lint: deps-lint ## format, include directions, headers alone, clang-tidy; ruff for Python
	@tests/lint/format.sh $(C_FILES)
	@tests/lint/includes.sh
	@tests/lint/headers.sh '$(CC) $(LINT_FLAGS) $(WARNINGS)' $(filter %.h,$(C_FILES))
	@tests/lint/tidy.sh '$(LINT_FLAGS)' $(filter-out $(INTRINSIC_SOURCES),$(filter %.c,$(C_FILES)))
	@.venv/bin/ruff check --quiet --no-cache --config weights/train/pyproject.toml weights tests

asan: deps-test ## all tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=asan test-built

tsan: deps-lint ## all tests under ThreadSanitizer
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=tsan test-built

test-cpus: deps-lint ## the golden models and products on emulated processors without AVX, AVX2 or AVX-512 (x86-64)
	@$(MAKE) --no-print-directory $(JOBS) all build/tests/engine/test_gemm
	@tests/cpus.sh build/aft build/tests

test-arm64: deps-arm64 ## build for arm64, and the golden models and the tests of kernels on emulated processors
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=arm64 all \
	    $(addprefix build/arm64/tests/engine/test_,gemm peak kernels kernels_attention kernels_conv)
	@tests/arm64/run.sh $(SYSROOT) build/arm64/aft build/arm64/tests

test-page: deps-page ## the page at / in a headless browser against the real daemon; screenshots in build/page/
	@$(MAKE) --no-print-directory $(JOBS) all
	@PYTHONDONTWRITEBYTECODE=1 .venv/bin/python -m pytest -q -p no:cacheprovider tests/page

fuzz: deps-lint ## every parser against inputs made up for FUZZ_SECONDS (20) each, under both sanitizers
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=fuzz fuzz-built

fuzz-built: $(FUZZERS)
	@tests/fuzz/run.sh $B $(FUZZ_SECONDS)

cover: deps-test ## how much of the code the tests reach, by file (needs gcovr)
	@command -v gcovr >/dev/null || { echo "gcovr is missing; as root, run: apt-get install -y gcovr"; exit 1; }
	@$(MAKE) --no-print-directory $(JOBS) VARIANT=cover test-built
	@gcovr --root . --exclude tests/ --exclude build/ build/cover

install: all ## install under DESTDIR and PREFIX (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/aftd
	install -m 755 build/aftd build/aft $(DESTDIR)$(PREFIX)/bin
	install -m 644 config/aftd.json $(DESTDIR)$(PREFIX)/share/aftd/aftd.json
	for model in weights/models/*/; do \
	    to=$(DESTDIR)$(PREFIX)/share/aftd/models/$$(basename $$model); \
	    install -d $$to && install -m 644 $$model/config.json $$model/model.safetensors $$model/MODEL_CARD.md $$to || exit 1; done

uninstall: ## remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/aftd $(DESTDIR)$(PREFIX)/bin/aft
	rm -rf $(DESTDIR)$(PREFIX)/share/aftd

dist: ## a source archive of the last commit in build/
	@mkdir -p build
	git archive --prefix=aftd-$(VERSION)/ -o build/aftd-$(VERSION).tar.gz HEAD

clean: ## remove what was built (but not .venv)
	rm -rf build
