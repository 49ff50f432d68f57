#!/usr/bin/env bash
# units.sh: systemd finds nothing wrong with the units in deploy/systemd, aftd's exposure is at most 1.5 by its measure,
# and aftd@.service is aftd.service but for its name and its settings.
set -u
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
failed=0
units=(deploy/systemd/*.service deploy/systemd/*.socket)

# The program need not be installed, nor the user be there, for its unit to be looked at.
for unit in "${units[@]}"; do
    sed -e 's|^ExecStart=/usr/bin/aftd|ExecStart=/bin/true|' -e '/^Documentation=/d' "$unit" >"$dir/${unit##*/}" || exit 1
done
names=("${units[@]##*/}")
SYSTEMD_LOG_LEVEL=warning systemd-analyze verify "${names[@]/#/$dir/}" >"$dir/said" 2>&1 || failed=1
if [ -s "$dir/said" ]; then
    cat "$dir/said"
    failed=1
fi

for unit in aftd.service aftd@.service; do
    if ! systemd-analyze security --no-pager --offline=true --threshold=15 "deploy/systemd/$unit" >"$dir/said" 2>&1; then
        grep -v '^✓' "$dir/said"
        failed=1
    fi
done

directives() { grep -v '^#' "deploy/systemd/$1"; }
if ! diff <(directives aftd.service | sed -e 's|/etc/aftd/aftd.json|/etc/aftd/%i.json|' -e '/^Description=/s|$| (%i)|') \
    <(directives aftd@.service); then
    echo "deploy/systemd/aftd@.service (>) differs from aftd.service"
    failed=1
fi
exit "$failed"
