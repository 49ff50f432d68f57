#!/bin/sh
# includes.sh: dependencies point one way, config < weights < engine < server, and each foreign header has its one place.
set -u
bad=0
# deny WHAT PATTERN PATH...: no line of the files may match.
deny() {
    what=$1 pattern=$2
    shift 2
    if grep -nE "^#[[:space:]]*include $pattern" "$@" /dev/null; then
        echo "lint: $what" >&2
        bad=1
    fi
}
others() { # others PATTERN FILE...: the files whose names do not match
    pattern=$1
    shift
    printf '%s\n' "$@" | grep -vE "$pattern"
}
config='config/*.[ch]' weights='weights/*.[ch]' engine='engine/*.[ch] engine/*/*.[ch]' server='server/*.[ch] server/*/*.[ch]'
# shellcheck disable=SC2086
{
    deny 'config/ knows nobody' '"(weights|engine|server|tests)/' $config
    deny 'weights/ knows config/ alone' '"(engine|server|tests)/' $weights
    deny 'engine/ knows weights/ and config/' '"(server|tests)/' $engine
    deny 'server/ does not know tests/' '"tests/' $server
    deny 'no JSON in the engine' '<jansson' $engine
    deny 'server/ sees the engine through its headers, not its parts' '"engine/(kernels|mixers|encoder|decoder|block|workspace|stream_state)' $server
    deny 'microhttpd.h belongs to server/http*.c and their http_inner.h' '<microhttpd' $(others '^server/http([^/]*\.c|_inner\.h)$' $config $weights $engine $server)
    deny 'http_inner.h belongs to server/http*.c' '"server/http_inner' $(others '^server/http[^/]*\.c$' $config $weights $engine $server)
    deny 'jpeglib.h, webp and libexif belong to server/picture*.c' '<(jpeglib|jerror|webp/|libexif)' $(others '^server/picture[^/]*\.c$' $config $weights $engine $server)
    deny 'png.h belongs to server/png.c and picture_png.c' '<png' $(others '^server/(picture_)?png\.c$' $config $weights $engine $server)
    deny 'cblas.h belongs to engine/kernels/gemm_blas.c and peak_openblas.c' '<cblas' $(others '^engine/kernels/(gemm_blas|peak_openblas)\.c$' $config $weights $engine $server)
    deny 'gnutls belongs to server/tls.c' '<gnutls' $(others '^server/tls\.c$' $config $weights $engine $server)
    deny 'curl belongs to server/cli/load*, remote.c and url.c' '<curl' $(others '^server/cli/(load[^/]*\.[ch]|(remote|url)\.c)$' $config $weights $engine $server)
    deny 'aft shares no HTTP with the daemon' '"server/(http|routes|job|queue|batcher|watcher)' server/cli/*.[ch]
    deny 'includes are written from the root' '"\.\.?/' $config $weights $engine $server tests/*/*.[ch]
}
exit $bad
