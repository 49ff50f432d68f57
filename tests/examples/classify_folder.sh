#!/bin/sh
# classify_folder.sh FOLDER [URL]: the probability and the most probable label of every picture in a folder.
# Leaves with 1 if one was refused, and says why.
folder=${1:?usage: classify_folder.sh FOLDER [URL]}
url=${2:-http://127.0.0.1:8080}
failed=0
for picture in "$folder"/*.jpg "$folder"/*.jpeg "$folder"/*.png "$folder"/*.webp; do
    [ -e "$picture" ] || continue # a pattern that nothing fits
    if answer=$(curl -sS --fail-with-body --max-time 60 --data-binary @"$picture" "$url/classify?top_k=1"); then
        echo "$answer" | sed -E 's/.*"label":"([^"]*)".*"probability":([^}]*)}.*/\2 \1/' | tr '\n' ' '
        echo "$picture"
    else
        echo "$picture: $answer" >&2
        failed=1
    fi
done
exit $failed
