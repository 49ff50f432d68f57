#!/bin/sh
# keep.sh DIR: choose anew what tests/fuzz/corpus keeps: of everything that the fuzz targets of DIR found worth keeping
# (DIR/corpus) and of what is kept already, as few inputs as reach all that these reach, none of more than 4 KiB; one
# archive for each target.
set -eu
dir=$1
kept=tests/fuzz/corpus
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in "$dir"/fuzz_*; do
    target=${program##*/fuzz_}
    mkdir -p "$work/from/$target" "$work/$target"
    if [ -f "$kept/$target.tar.xz" ]; then tar -C "$work/from/$target" -xJf "$kept/$target.tar.xz"; fi
    find "$dir/corpus/$target" -type f -size -4097c -exec cp -t "$work/from/$target" {} +
    "$program" -set_cover_merge=1 -max_len=4096 "$work/$target" "$work/from/$target" 2>"$work/log" ||
        { cat "$work/log" && exit 1; }
    (cd "$work/$target" && ls) | tar --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 -C "$work/$target" \
        -cJf "$kept/$target.tar.xz" -T -
    echo "$target: $(find "$work/$target" -type f | wc -l) inputs, $(wc -c <"$kept/$target.tar.xz") bytes"
done
