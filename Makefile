# aftd: `make help` lists what there is to do.

# ---- what is built -------------------------------------------------------------------------------------------------

# VARIANT chooses flags and folder: release (build/), debug, asan, tsan (build/VARIANT/). Objects never mix.
VARIANT ?= release
VERSION := 0.1.0
B := $(if $(filter release,$(VARIANT)),build,build/$(VARIANT))

PREFIX ?= /usr/local
DESTDIR ?=

PKGS := libmicrohttpd jansson libjpeg libexif nettle
LIBRARY_SOURCES := $(wildcard config/*.c weights/*.c engine/*.c engine/kernels/*.c engine/mixers/*.c)
# What aft shares with the daemon beyond the library; the rest of server/ is the daemon's own.
COMMON_SOURCES := server/picture.c server/text.c
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
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS))
LIBS = $(shell pkg-config --libs $(PKGS)) -lopenblas -lm
TEST_LIBS = $(shell pkg-config --libs cmocka libcurl) -ldl

ifeq ($(VARIANT),release)
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
  # gcc's libgomp is not instrumented and makes ThreadSanitizer report races that are none; without OpenMP the engine
  # thread still runs beside the HTTP threads, which is where the project's own locks are.
  CC := clang-14
  OPTIMISE := -O1 -g -fno-omit-frame-pointer
  SANITISE := -fsanitize=thread
  OPENMP :=
  WARNINGS += -Wno-unknown-pragmas -Wno-source-uses-openmp
else ifeq ($(VARIANT),cover)
  OPTIMISE := -O0 -g
  SANITISE := --coverage
  OPENMP := -fopenmp
else
  $(error VARIANT is $(VARIANT); expected release, debug, asan, tsan or cover)
endif

# The element-wise kernels are plain C that the compiler vectorises; on x86-64 they are compiled three times and
# engine/kernels/dispatch.c picks one at start. Nothing else may use instructions beyond the architecture's baseline.
KERNEL_FLAGS := -O3 -fno-math-errno -fno-trapping-math -ffp-contract=fast -Wno-psabi
ifneq ($(filter x86_64-%,$(shell $(CC) -dumpmachine)),)
  KERNEL_OBJECTS := $B/engine/kernels/portable-x86-64-v3.o $B/engine/kernels/portable-x86-64-v4.o
endif

LIBRARY_OBJECTS := $(LIBRARY_SOURCES:%.c=$B/%.o) $(KERNEL_OBJECTS) $(COMMON_SOURCES:%.c=$B/%.o)
DAEMON_OBJECTS := $(DAEMON_SOURCES:%.c=$B/%.o)
CLI_OBJECTS := $(CLI_SOURCES:%.c=$B/%.o)
SUPPORT_OBJECTS := $(TEST_SUPPORT:%.c=$B/%.o)

# ---- targets -------------------------------------------------------------------------------------------------------

.PHONY: all help deps deps-test deps-lint run test test-built check bench fmt lint asan tsan debug cover install uninstall dist clean
.DELETE_ON_ERROR:
.SECONDARY:

all: $B/aftd $B/aft ## build build/aftd and build/aft (default)

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14

$B/aftd: $B/server/main.o $(DAEMON_OBJECTS) $(LIBRARY_OBJECTS)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$B/aft: $B/server/cli/main.o $(CLI_OBJECTS) $(LIBRARY_OBJECTS)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS)

$B/tests/%: $B/tests/%.o $(SUPPORT_OBJECTS) $(CLI_OBJECTS) $(DAEMON_OBJECTS) $(LIBRARY_OBJECTS)
	$(CC) $(ALL_LDFLAGS) -o $@ $^ $(TEST_LIBS) $(LIBS)

$B/engine/kernels/portable.o: engine/kernels/portable.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(KERNEL_FLAGS) -DKERNELS_ISA=baseline -MMD -MP -c -o $@ $<

$B/engine/kernels/portable-x86-64-v3.o: engine/kernels/portable.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(KERNEL_FLAGS) -march=x86-64-v3 -DKERNELS_ISA=x86_64_v3 -MMD -MP -c -o $@ $<

$B/engine/kernels/portable-x86-64-v4.o: engine/kernels/portable.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) $(KERNEL_FLAGS) -march=x86-64-v4 -mprefer-vector-width=512 \
	    -DKERNELS_ISA=x86_64_v4 -MMD -MP -c -o $@ $<

$B/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALL_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

-include $(shell find $B -name '*.d' 2>/dev/null)

clean: ## remove what was built
	rm -rf build
