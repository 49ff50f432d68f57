# checks.sh: counting what holds; sourced by package.sh and container.sh.
passed=0 failed=0

check() { # check WHAT COMMAND...: that it succeeds; what it prints is shown if it does not
    local what=$1 out
    shift
    if out=$("$@" 2>&1); then
        passed=$((passed + 1))
        echo "ok      $what"
    else
        failed=$((failed + 1))
        printf 'not ok  %s\n%s\n' "$what" "$out"
    fi
}
end() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
