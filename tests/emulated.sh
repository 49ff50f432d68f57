# emulated.sh: what runs of the programs on emulated processors share; to be sourced at the top of the tree, with
# $emulator set to qemu's program and its options, $aft to the aft program and $tests to the folder of test programs.
# Without it the programs would execute themselves anew (server/core/short_spin.h), and beside qemu rather than in it.
export GOMP_SPINCOUNT=100
unset AFTD_ISA AFTD_PRECISION OPENBLAS_CORETYPE
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
ulimit -c 0
passed=0 failed=0
golden=tests/data/golden
models=$(find $golden -mindepth 1 -maxdepth 1 -type d | wc -l)
text='The [[Roman Empire]] followed the [[Roman Republic]]; its history is told from [[Augustus]], the first emperor.'
# AFTD_TEST_SLOW=N stretches the time limit, as elsewhere.
on() { # on CPU [-E NAME=VALUE] PROGRAM...: qemu also warns of features that it lacks itself
    cpu=$1
    shift
    # shellcheck disable=SC2086
    timeout $((300 * ${AFTD_TEST_SLOW:-1})) $emulator -cpu "$cpu" "$@" >"$dir/out" 2>"$dir/err"
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
# probe NAME INSTRUCTION [FLAG]: a program of that instruction
probe() {
    printf '#include <stdio.h>\nint main(void) { __asm__ volatile("%s"); return puts("ran") < 0; }\n' "$2" >"$dir/$1.c"
    # shellcheck disable=SC2086
    ${CC:-gcc} ${3:-} -o "$dir/$1" "$dir/$1.c" || exit 1
}
# cpu MODEL KERNELS SAYS HAS LACKS SETS: expected kernels, what else `aft inspect` says of OpenBLAS, probes that run
# and that do not, values of AFTD_ISA to be refused
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
    expect "$1 runs $2 kernels" 0 "^isa +$2\$"
    expect "$1 multiplies in f32" 0 '^precision +f32$'
    expect "$1 has ${3:-OpenBLAS}" 0 "^blas +OpenBLAS .*$3"
    for isa in $6; do
        on "$1" -E "AFTD_ISA=$isa" "$aft" inspect $golden/lm-local-8
        expect "$1 is not forced to $isa" 1 "instruction set \"$isa\" is unknown or not supported by this machine"
        on "$1" -E "AFTD_ISA=$isa" "$aft" verify $golden/lm-local-8
        expect "$1 does not verify with $isa" 1 "instruction set \"$isa\" is unknown or not supported by this machine"
    done
    on "$1" "$aft" verify $golden/*/
    expect "$1: aft verify of $models models" 0 "^$models passed, 0 failed"
}
# precisions MODEL: in bf16 and int8 the golden models, and two others on what they have no cases of: what f32 says,
# but for what check-precision allows (f32: 1.2253 bits, 0.9896); and the loops that measure such a processor
precisions() {
    printf '%s' "$text" >"$dir/text"
    for precision in bf16 int8; do
        on "$1" "$aft" verify --precision $precision $golden/*/
        expect "$1: aft verify of $models models in $precision" 0 "^$models passed, 0 failed"
        on "$1" -E "AFTD_PRECISION=$precision" "$aft" score tests/data/models/enwik8-aft-local "$dir/text"
        expect "$1: aft score in $precision" 0 '^1\.2(2[0-9]|30)[0-9]* bits per byte'
        on "$1" -E "AFTD_PRECISION=$precision" "$aft" classify cifar10-aft-conv weights/models/cifar10-aft-conv/sample.jpg
        expect "$1: aft classify in $precision" 0 '^0\.9(8[89]|90)[0-9]*[[:blank:]]+ship'
        on "$1" "$tests/bench/limits" --rounds 1 --precision $precision $golden/lm-local-8
        expect "$1: limits in $precision" 0 "MAC at [0-9]+ GFLOP/s of $precision, "
    done
}
# program MODEL NAME: a test program passes
program() {
    on "$1" "$tests/$2"
    expect "$1: $2" 0 '^\[  PASSED  \] [0-9]+ test'
}
# The line that ends a run.
finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}
