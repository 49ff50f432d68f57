#!/bin/sh
# run.sh SYSROOT PROGRAM TESTS: the programs as built for arm64, by qemu's user emulation: which kernels are picked on
# processors with and without products of bytes and of bf16, that the golden models come out right with them, and the
# tests of kernels and products. Ends with one line "N passed, N failed". What is slow under qemu stays out: the tests of
# whole engines take it some ten minutes, and daemons are no different from those of the machine here.
set -u
cd "$(dirname "$0")/../.." || exit 1
aft=$2 tests=$3 emulator="qemu-aarch64 -L $1" CC="aarch64-linux-gnu-gcc --sysroot=$1"
. tests/emulated.sh
probe dotprod 'sdot v0.4s, v1.16b, v2.16b' -march=armv8.2-a+dotprod
probe bf16 'bfdot v0.4s, v1.8h, v2.8h' -march=armv8.2-a+bf16
x86='avx2 avx512'
cpu cortex-a53 neon '' '' 'dotprod bf16' "neondotprod neonbf16 $x86"
cpu cortex-a76 neondotprod '' dotprod bf16 neonbf16
cpu max neonbf16 '' 'dotprod bf16' '' "$x86"
on cortex-a53 -E AFTD_ISA=baseline "$aft" inspect $golden/lm-local-8
expect "cortex-a53 runs baseline kernels when asked to" 0 '^isa +baseline$'
on cortex-a53 -E AFTD_ISA=baseline "$aft" verify $golden/*/
expect "cortex-a53: aft verify of $models models with them" 0 "^$models passed, 0 failed"
precisions cortex-a53
precisions max
# max has every table; what is in plain C is the same in each of them.
program max engine/kernels/test_gemm
program cortex-a53 engine/kernels/test_kernels
program cortex-a53 engine/mixers/test_aft_conv
program cortex-a53 engine/mixers/test_aft_streams
program cortex-a53 engine/mixers/test_attention
finish
