#!/bin/sh
# headers.sh COMPILER FILE...: every header compiles alone.
set -u
compiler=$1
shift
bad=0
for header in "$@"; do
    # shellcheck disable=SC2086
    $compiler -Wno-unused-function -Wno-psabi -fsyntax-only -x c "$header" || { echo "lint: $header does not compile alone" >&2; bad=1; }
done
exit $bad
