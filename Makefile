# aftd: `make help` lists what there is to do. What belongs to the tests is in tests/*.mk, what is installed beside the
# programs in deploy/deploy.mk.

# ---- what is built -------------------------------------------------------------------------------------------------

# VARIANT chooses flags and folder: release (build/), or debug, asan, tsan, cover, fuzz, arm64 (build/VARIANT/). Objects
# never mix.
VARIANT ?= release
VERSION := 0.2.0
B := $(if $(filter release,$(VARIANT)),build,build/$(VARIANT))

# One library of everything but the two main files: the linker takes from it what a program uses.
MAINS := server/main.c server/cli/main.c
SOURCES := $(filter-out $(MAINS),$(wildcard config/*.c weights/*.c engine/*.c engine/*/*.c server/*/*.c))
C_FILES := $(wildcard $(foreach depth,* */* */*/*,$(foreach root,config weights engine server deploy tests,$(root)/$(depth).[ch])))

# What --version says. An archive made by git has the commit in .commit; whoever builds from something else may give it:
# make COMMIT=...
COMMIT = $(call once,COMMIT,$(or $(shell [ -e .git ] && git describe --always --exclude='*' --abbrev=40 --dirty=+changes 2>/dev/null),$(shell sed -n '/^[0-9a-f]*$$/p' .commit 2>/dev/null),unknown))

# ---- flags ---------------------------------------------------------------------------------------------------------

WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef \
    -Werror=implicit-function-declaration # which gcc 14 refuses anyhow
ALL_CPPFLAGS = -I. -D_GNU_SOURCE -DAFTD_VERSION='"$(VERSION)"' $(DIRECTORIES) $(HARDEN_CPP) $(PKG_CFLAGS) $(CPPFLAGS)
# Last, so that no CFLAGS change it: a product and a sum are fused where the source says so (engine/kernels/lanes.h),
# not where a compiler likes to. `make lint` looks at the commands of all builds.
ALL_CFLAGS = -std=c11 $(WARNINGS) $(OPTIMISE) $(SANITISE) $(OPENMP) -fPIE -pthread $(CFLAGS) -ffp-contract=off
ALL_LDFLAGS = -pie -Wl,-z,relro,-z,now -Wl,--as-needed $(SANITISE) $(OPENMP) -pthread $(LDFLAGS)

OPENMP := -fopenmp
# For sanitizers: fast enough, and lines in stack traces, but no more than that to debug, which takes long to link.
TRACEABLE := -O1 -g1 -fno-omit-frame-pointer
ifneq ($(filter release arm64,$(VARIANT)),)
  OPTIMISE := -O2 -g
  HARDEN_CPP := -D_FORTIFY_SOURCE=2
  SANITISE := -fstack-protector-strong
else ifeq ($(VARIANT),debug)
  OPTIMISE := -O0 -g3
else ifeq ($(VARIANT),asan)
  OPTIMISE := $(TRACEABLE)
  SANITISE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
else ifeq ($(VARIANT),tsan)
  # ThreadSanitizer does not see gcc's libgomp synchronise and reports races that do not exist; LLVM's libomp tells it,
  # through the Archer tool that tests/run.sh loads.
  CC := clang-14
  OPTIMISE := $(TRACEABLE)
  SANITISE := -fsanitize=thread
else ifeq ($(VARIANT),cover)
  OPTIMISE := -O0 -g
  SANITISE := --coverage
else ifeq ($(VARIANT),fuzz)
  CC := clang-14
  OPTIMISE := $(TRACEABLE)
  SANITISE := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
  OPENMP :=
else
  $(error VARIANT is $(VARIANT); expected release, debug, asan, tsan, cover, fuzz or arm64)
endif
PKG_CONFIG := pkg-config
# The release for arm64, on any machine: with Debian's cross compiler and its packages unpacked (make deps-arm64).
SYSROOT := build/arm64-sysroot
ifeq ($(VARIANT),arm64)
  CC := aarch64-linux-gnu-gcc --sysroot=$(abspath $(SYSROOT))
  PKG_CONFIG := PKG_CONFIG_SYSROOT_DIR=$(SYSROOT) PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/aarch64-linux-gnu/pkgconfig:$(SYSROOT)/usr/share/pkgconfig pkg-config
endif

# pkg-config is asked once, and only by what compiles or links: the first use replaces the variable by its value.
PKGS := libmicrohttpd jansson libjpeg libpng libwebp libwebpdemux libexif nettle gnutls hiredis libxxhash
CLI_PKGS := libcurl # of aft alone
once = $(eval $(1) := $(2))$($(1))
PKG_CFLAGS = $(call once,PKG_CFLAGS,$(shell $(PKG_CONFIG) --cflags $(PKGS) $(CLI_PKGS)))
PKG_LIBS = $(call once,PKG_LIBS,$(shell $(PKG_CONFIG) --libs $(PKGS) $(CLI_PKGS)))
# The linker drops the libraries that a program does not use: aftd does not depend on libcurl, nor aft on libmicrohttpd.
LIBS = $(PKG_LIBS) -lopenblas -lm

# ---- kernels -------------------------------------------------------------------------------------------------------

# The element-wise kernels and the mixers are plain C that the compiler vectorises: on x86-64 they are compiled as they are
# and again as -avx2 and -avx512, and engine/kernels/dispatch.c picks one at start. By intrinsics: avx2_*.c and avx512_*.c for
# x86-64, neon*.c for arm64. Nothing else may use instructions beyond the architecture's baseline. These flags are what
# dispatch.c looks for, no more. gcc takes a minute and a half over checks in unrolled loops.
KERNEL_FLAGS := $(if $(filter asan,$(VARIANT)),-O1,-O3) -fno-math-errno -fno-trapping-math -Wno-psabi
AVX2_FLAGS := -mavx2 -mfma
AVX512_FLAGS := $(AVX2_FLAGS) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512
ifeq ($(VARIANT),tsan)
  # ThreadSanitizer sees accesses of at most 16 bytes: the tables keep their names and use narrow registers.
  AVX2_FLAGS :=
  AVX512_FLAGS :=
  PLAIN_FLAGS := -DKERNELS_PLAIN
endif
kernels = $(basename $(wildcard engine/kernels/$(1).c))
SIMD := $(call kernels,simd_*) $(basename $(wildcard engine/mixers/*.c))
MACHINE := $(shell $(CC) -dumpmachine)
ifneq ($(filter x86_64-%,$(MACHINE)),)
  KERNELS := $(if $(PLAIN_FLAGS),,$(call kernels,avx*)) $(foreach isa,avx2 avx512,$(addsuffix -$(isa),$(SIMD)))
else ifneq ($(filter aarch64-%,$(MACHINE)),)
  KERNELS := $(if $(PLAIN_FLAGS),engine/kernels/neon,$(call kernels,neon*))
endif
INTRINSIC_SOURCES := $(addsuffix .c,$(call kernels,avx*) $(call kernels,neon*))

ISA_FLAGS := # of one object
objects = $(patsubst %,$B/%.o,$(1))
$(call objects,weights/tensor engine/kernels/gemm): ISA_FLAGS = $(KERNEL_FLAGS) # as they are alone: the start is theirs
$(call objects,$(SIMD)): ISA_FLAGS = $(KERNEL_FLAGS) -DKERNELS_ISA=baseline
$(call objects,$(addsuffix -avx2,$(SIMD)) $(call kernels,avx2_*)): ISA_FLAGS = $(KERNEL_FLAGS) $(AVX2_FLAGS) -DKERNELS_ISA=avx2
$(call objects,$(addsuffix -avx512,$(SIMD))): ISA_FLAGS = $(KERNEL_FLAGS) $(AVX512_FLAGS) -DKERNELS_ISA=avx512
$(call objects,$(call kernels,avx512_vnni*)): ISA_FLAGS = $(KERNEL_FLAGS) $(AVX512_FLAGS) -mavx512vnni -DKERNELS_ISA=avx512
$(call objects,$(call kernels,avx512_bf16*)): ISA_FLAGS = $(KERNEL_FLAGS) $(AVX512_FLAGS) -mavx512bf16 -DKERNELS_ISA=avx512
$(call objects,$(call kernels,avx512_amx*)): ISA_FLAGS = $(KERNEL_FLAGS) $(AVX512_FLAGS) -mamx-tile -mamx-int8 -mamx-bf16 -DKERNELS_ISA=avx512
# Scheduled before registers are allocated, loads move ahead until some of 24 sums are on the stack.
$(call objects,$(call kernels,neon*)): ISA_FLAGS = $(KERNEL_FLAGS) -fno-schedule-insns $(NEON_FLAGS) -DKERNELS_ISA=baseline
$(call objects,$(call kernels,neon_dotprod*)): NEON_FLAGS := -march=armv8.2-a+dotprod
$(call objects,$(call kernels,neon_bf16*)): NEON_FLAGS := -march=armv8.2-a+bf16
$(call objects,engine/kernels/dispatch): ISA_FLAGS = $(PLAIN_FLAGS)
ifneq ($(filter asan fuzz,$(VARIANT)),)
  # A check at every load makes products eight times slower, and the tests of whole daemons with them; clang takes ten
  # minutes to compile them so. What they read and write is what their callers hand them, whose own accesses are checked.
  $(call objects,$(call kernels,avx*) $(call kernels,neon*) $(addprefix engine/kernels/simd_gemm,-avx2 -avx512) engine/kernels/simd_gemm): SANITISE :=
endif

# ---- rules ---------------------------------------------------------------------------------------------------------

.PHONY: all programs help deps run dist clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all
# With all processors, unless -j says otherwise. To be used in recipes alone: only there MAKEFLAGS has -j.
JOBS = $(if $(filter -j%,$(MAKEFLAGS)),,-j$(shell nproc 2>/dev/null || echo 1))
BUILD = $(MAKE) --no-print-directory $(JOBS)

# Commands are shown in short; V=1 shows them whole.
ifeq ($(V),1)
  say =
  Q :=
else
  say = @echo "  $(1)  $@"
  Q := @
endif

all: ## build build/aftd and build/aft (default)
	+@$(BUILD) programs

programs: $B/aftd $B/aft
	@:

help: ## list the targets
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' Makefile */*.mk | expand -t 16

LIBRARY := $B/libaftd.a
OBJECTS := $(call objects,$(basename $(filter-out $(INTRINSIC_SOURCES),$(SOURCES))) $(KERNELS))

$(LIBRARY): $(OBJECTS)
	$(call say,AR  )
	$(Q)rm -f $@ && ar qcsD $@ $^

$B/aftd: $B/server/main.o $(LIBRARY)
$B/aft: $B/server/cli/main.o $(LIBRARY)
$B/aftd $B/aft:
	$(call say,LINK)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

define compile
@mkdir -p $(@D)
$(call say,CC  )
$(Q)$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(ISA_FLAGS) -MMD -MP -c -o $@ $<
endef

$B/%-avx2.o: %.c Makefile
	$(compile)

$B/%-avx512.o: %.c Makefile
	$(compile)

$B/%.o: %.c Makefile
	$(compile)

# Files that are part of the program.
$B/server/api/page.o: $(wildcard server/web/*) weights/models/cifar10-aft-conv/sample.jpg
$B/server/api/openapi.o: server/api/openapi.json

# The commit: this file changes only with it, so that a new one compiles only the two main files anew.
$B/commit: FORCE
	@mkdir -p $(@D); echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' >$@
$(call objects,$(basename $(MAINS))): $B/commit
$(call objects,$(basename $(MAINS))): ISA_FLAGS = -DAFTD_COMMIT='"$(COMMIT)"'

# ---- Debian packages -------------------------------------------------------------------------------------------------

DEPS_BUILD := gcc libc6-dev make pkg-config libmicrohttpd-dev libjansson-dev libopenblas-openmp-dev libjpeg62-turbo-dev \
    libpng-dev libwebp-dev libexif-dev nettle-dev libgnutls28-dev libhiredis-dev libxxhash-dev libcurl4-openssl-dev

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

deps: ## install what the build needs (Debian; as root)
	$(call install,$(DEPS_BUILD))

# ---- using it --------------------------------------------------------------------------------------------------------

run: deps ## install what is missing, build, serve the shipped models on 127.0.0.1:8080, or as AFTD_LISTEN_PORT=... says
	+@$(BUILD) programs
	@at=http://127.0.0.1:$${AFTD_LISTEN_PORT:-8080}; \
	echo; \
	echo "Try, from another terminal in this folder:"; \
	echo "  curl --data-binary @weights/models/cifar10-aft-conv/sample.jpg $$at/classify"; \
	echo "  curl -d '{\"text\": \"Der Hund schläft unter dem Tisch.\"}' $$at/classify"; \
	echo "  curl -N -d '{\"prompt\": \"The history of \", \"stream\": true}' $$at/generate"; \
	echo "  curl $$at/metrics"; \
	echo "  build/aft top"; \
	echo "or open $$at/ in a browser."; \
	echo "Ctrl-C ends the daemon."; \
	echo
	@build/aftd --config config/aftd.json --admin-unix build/admin.sock

dist: ## a source archive of the last commit in build/
	@mkdir -p build
	git archive --prefix=aftd-$(VERSION)/ -o build/aftd-$(VERSION).tar.gz HEAD

clean: ## remove what was built (but not .venv)
	rm -rf build

include deploy/deploy.mk tests/tests.mk tests/lint.mk tests/bench.mk

-include $(patsubst %.o,%.d,$(OBJECTS) $(call objects,$(basename $(MAINS))) $(WRITER_OBJECTS) $(TEST_OBJECTS))
