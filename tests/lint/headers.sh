#!/bin/sh
# headers.sh COMPILER FILE...: every header compiles alone, without a warning.
set -u
compiler=$1
shift
bad=0
for header in "$@"; do
    # shellcheck disable=SC2086
    echo 'typedef int not_an_empty_unit;' | $compiler -Werror -Wno-unused-function -Wno-psabi -fsyntax-only \
        -include "$header" -x c - || { echo "lint: $header does not compile alone" >&2; bad=1; }
done
exit $bad
