#!/bin/sh
# cpus.sh [PROGRAM [TESTS]]: the programs on processors older than this one, by qemu's user emulation (qemu-user): what
# each CPU model lacks stays unused, which kernels are picked, that the golden models come out right with them, and the
# products in every precision. Ends with one line "N passed, N failed". qemu refuses what a model lacks, as the processor
# would, and no version here knows AVX-512 at all; the probes show that it does. OpenBLAS looks at the same cpuid and
# picks for itself.
#
# Not among the models: qemu64, whose AMD of 2006 has lost its 3DNow!, which OpenBLAS takes for granted in an Opteron.
set -u
cd "$(dirname "$0")/.." || exit 1
aft=${1:-build/aft} tests=${2:-build/tests} emulator=qemu-x86_64
if [ "$(uname -m)" != x86_64 ]; then
    echo "skipped: the models are those of x86-64, and this is $(uname -m)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
command -v qemu-x86_64 >/dev/null || { echo "qemu-x86_64 is missing (Debian: qemu-user); make deps-lint installs it"; exit 1; }
. tests/emulated.sh
probe avx 'vaddps %xmm0, %xmm0, %xmm1'
probe avx2 'vpaddd %ymm0, %ymm0, %ymm1'
probe avx512 'vaddps %zmm0, %zmm0, %zmm1'
wide='avxvnni avx512 avx512vnni avx512bf16 amx'
cpu Nehalem baseline 'Nehalem MAX_THREADS' '' 'avx avx2 avx512' "avx2 $wide"
cpu SandyBridge baseline 'Sandybridge MAX_THREADS' avx 'avx2 avx512' "avx2 $wide"
cpu Haswell-noTSX avx2 'Haswell MAX_THREADS' 'avx avx2' avx512 "$wide"
cpu EPYC-Rome avx2 'Zen MAX_THREADS' 'avx avx2' avx512 "$wide"
# A lower set than the best can be asked for.
on Haswell-noTSX -E AFTD_ISA=baseline "$aft" verify $golden/lm-local-8 $golden/conv-heads8-k5
expect "Haswell-noTSX: aft verify with baseline kernels" 0 '^2 passed, 0 failed'
# The products by either set, in bf16 and int8 as well: values, and that a row's bits depend on the row alone.
for model in Nehalem Haswell-noTSX; do
    program $model engine/kernels/test_gemm
    precisions $model
done
finish
