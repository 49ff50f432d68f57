#!/bin/sh
# cpus.sh [PROGRAM]: the programs on processors older than this one, by qemu's user emulation (qemu-user): what each CPU
# model lacks stays unused, which kernels are picked, and the golden models come out right with them. Ends with one line
# "N passed, N failed". qemu refuses what a model lacks, as the processor would, and no version here knows AVX-512 at all;
# the probes show that it does. OpenBLAS looks at the same cpuid and picks for itself.
#
# Not among the models: qemu64, whose AMD of 2006 has lost its 3DNow!, which OpenBLAS takes for granted in an Opteron.
set -u
cd "$(dirname "$0")/.." || exit 1
aft=${1:-build/aft}
# Without it the programs would execute themselves anew (server/spin.h), and beside qemu rather than in it.
export GOMP_SPINCOUNT=100
unset AFTD_ISA AFTD_PRECISION OPENBLAS_CORETYPE
if [ "$(uname -m)" != x86_64 ]; then
    echo "skipped: the models are those of x86-64, and this is $(uname -m)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
command -v qemu-x86_64 >/dev/null || { echo "qemu-x86_64 is missing (Debian: qemu-user); make deps-lint installs it"; exit 1; }
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
ulimit -c 0
passed=0 failed=0
on() { # on CPU [-E NAME=VALUE] PROGRAM...: qemu also warns of features that it lacks itself
    cpu=$1
    shift
    timeout 300 qemu-x86_64 -cpu "$cpu" "$@" >"$dir/out" 2>"$dir/err"
    code=$?
    grep -v "warning: TCG doesn't support" "$dir/err" >>"$dir/out"
    return $code
}
# expect WHAT CODE PATTERN: the last program ended so (signals count from 128), and a line of its output matches.
expect() {
    if [ "$code" -eq "$2" ] && grep -qE -- "$3" "$dir/out"; then
        passed=$((passed + 1))
        echo "ok      $1"
    else
        failed=$((failed + 1))
        echo "FAILED  $1: ended with $code, expected $2 and a line like \"$3\" in:"
        sed 's/^/    /' "$dir/out"
    fi
}
# probe NAME INSTRUCTION: a program of that instruction
probe() {
    printf '#include <stdio.h>\nint main(void) { __asm__ volatile("%s"); return puts("ran") < 0; }\n' "$2" >"$dir/$1.c"
    ${CC:-gcc} -o "$dir/$1" "$dir/$1.c" || exit 1
}
probe avx 'vaddps %xmm0, %xmm0, %xmm1'
probe avx2 'vpaddd %ymm0, %ymm0, %ymm1'
probe avx512 'vaddps %zmm0, %zmm0, %zmm1'
golden=tests/data/golden
models=$(find $golden -mindepth 1 -maxdepth 1 -type d | wc -l)
# cpu MODEL KERNELS BLAS HAS LACKS SETS: expected kernels, OpenBLAS's name for the CPU, probes that run and that do not,
# values of AFTD_ISA to be refused
cpu() {
    for name in $4; do
        on "$1" "$dir/$name"
        expect "$1 runs $name" 0 '^ran$'
    done
    for name in $5; do
        on "$1" "$dir/$name"
        expect "$1 refuses $name" 132 'signal 4'
    done
    on "$1" "$aft" --version
    expect "$1: aft --version" 0 '^aft [0-9]'
    on "$1" "${aft}d" --version
    expect "$1: aftd --version" 0 '^aftd [0-9]'
    on "$1" "$aft" inspect $golden/lm-local-8
    expect "$1 runs $2 kernels" 0 "^runs on +$2 kernels, .* $3 MAX_THREADS"
    for isa in $6; do
        on "$1" -E "AFTD_ISA=$isa" "$aft" inspect $golden/lm-local-8
        expect "$1 is not forced to $isa" 1 "instruction set \"$isa\" is unknown or not on this machine"
        on "$1" -E "AFTD_ISA=$isa" "$aft" verify $golden/lm-local-8
        expect "$1 does not verify with $isa" 1 "instruction set \"$isa\" is unknown or not on this machine"
    done
    on "$1" "$aft" verify $golden/*/
    expect "$1: aft verify of $models models" 0 "^$models passed, 0 failed"
}
wide='avx512 avx512vnni avx512bf16'
cpu Nehalem baseline Nehalem '' 'avx avx2 avx512' "avx2 $wide"
cpu SandyBridge baseline Sandybridge avx 'avx2 avx512' "avx2 $wide"
cpu Haswell-noTSX avx2 Haswell 'avx avx2' avx512 "$wide"
cpu EPYC-Rome avx2 Zen 'avx avx2' avx512 "$wide"
# A lower set than the best can be asked for.
on Haswell-noTSX -E AFTD_ISA=baseline "$aft" verify $golden/lm-local-8 $golden/conv-heads8-k5
expect "Haswell-noTSX: aft verify with baseline kernels" 0 '^2 passed, 0 failed'
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
