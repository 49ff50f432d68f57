#!/bin/sh
# man.sh PAGE...: mandoc finds nothing wrong with the manual pages. That it cannot find the pages to which they refer is
# no mistake of theirs: it looks for installed ones.
set -u
found=$(mandoc -T lint "$@")
if [ $? -gt 4 ]; then
    echo "lint: mandoc did not run" >&2
    exit 1
fi
! printf '%s\n' "$found" | grep -v -e '^$' -e 'referenced manual not found: Xr aft'
