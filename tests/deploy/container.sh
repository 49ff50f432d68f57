#!/usr/bin/env bash
# container.sh: the image of deploy/container/Dockerfile, built and run by a real container engine: docker where it works,
# else podman with runc (make deps-container). Where its base image cannot be pulled, what debootstrap makes takes its name. Ends with "N passed, N failed"; says what is missing.
set -u
cd "$(dirname "$0")/../.." || exit 1
target=test-container
. tests/bare_root.sh
. tests/deploy/checks.sh
command -v curl >/dev/null || missing "curl is not installed: make deps-bare"
image=aftd-test container=aftd-test-$$ port=${PORT:-18480} context=$PWD/build/container-context
commit=$(git rev-parse --short HEAD) || exit 1

# ---- the engine --------------------------------------------------------------------------------------------------------

if docker info >/dev/null 2>&1; then
    engine=docker
    run=(docker run) build=(docker build)
elif command -v podman >/dev/null && command -v runc >/dev/null && [ "$(id -u)" = 0 ]; then
    engine=podman
    # Limits that a container within a container may not raise; chroot needs no more than this test has anyway.
    run=(podman --runtime runc run --ulimit nofile=4096:4096 --ulimit nproc=4096:4096)
    build=(podman build --isolation chroot --format docker)
else
    missing "neither docker nor, as root, podman with runc works: make deps-container"
fi
stop() {
    $engine rm -f "$container" >/dev/null 2>&1
    rm -rf "${root:-}" "$context"
}
trap stop EXIT
echo "---- $($engine --version)"

base=$(sed -n 's/^ARG BASE=//p' deploy/container/Dockerfile)
if ! $engine image inspect "$base" >/dev/null 2>&1 && ! timeout 60 $engine pull "$base" >/dev/null 2>&1; then
    echo "---- $base cannot be pulled: debootstrap's minimal system takes its place"
    bare_needs
    bare_root container ca-certificates
    tar -C "$root" -c . | $engine import - "$base" >/dev/null || missing "$engine cannot import an image"
fi

# ---- the image ---------------------------------------------------------------------------------------------------------

echo "---- building"
build_image() {
    "${build[@]}" --network host -f "$context/deploy/container/Dockerfile" -t $image \
        --build-arg COMMIT="$commit" "$context" >build/container.log 2>&1 ||
        { tail -n 30 build/container.log; return 1; }
}
rm -rf "$context" && mkdir -p "$context" && git archive "$commit" | tar -x -C "$context" || exit 1
check "the Dockerfile builds" build_image
[ "$failed" -eq 0 ] || end
inspect() { # inspect FORMAT PATTERN
    local said
    said=$($engine image inspect --format "$1" $image)
    [[ $said = *$2* ]] || { echo "expected \"$2\" in: $said"; return 1; }
}
check "it runs as a user that is not root" inspect '{{.Config.User}}' '10001:10001'
check "its command needs no shell" inspect '{{json .Config.Entrypoint}}' '["/usr/bin/aftd"]'
check "it has labels" inspect '{{json .Config.Labels}}' "\"org.opencontainers.image.revision\":\"$commit\""

# ---- the daemon --------------------------------------------------------------------------------------------------------

start() { # start FLAGS...: restricted as REFERENCE.md says, with the network of the machine; returns once it is ready
    "${run[@]}" --detach --name "$container" --network host --read-only --cap-drop ALL --security-opt no-new-privileges \
        -e AFTD_LISTEN_ADDRESS=127.0.0.1 -e AFTD_LISTEN_PORT="$port" "$@" $image >/dev/null || return 1
    for _ in $(seq 300); do
        curl -sf -o /dev/null "http://127.0.0.1:$port/readyz" && return 0
        sleep 0.1
    done
    $engine logs "$container"
    return 1
}
ask() { # ask PATTERN CURL_ARGUMENTS...
    local said
    said=$(curl -s --max-time 20 "${@:2}")
    [[ $said = *$1* ]] || { echo "expected \"$1\" in: $said"; return 1; }
}
logged() { # logged PATTERN
    $engine logs "$container" 2>&1 | grep -q -- "$1" || { $engine logs "$container"; return 1; }
}
process() { $engine inspect --format "{{.State.Pid}}" "$container" 2>/dev/null; }
status_of() { # status_of PATTERN: of its process
    grep -qE "$1" "/proc/$(process)/status" || { grep -E 'Uid|Cap|NoNew|Seccomp' "/proc/$(process)/status"; return 1; }
}
healthy() { "$engine" exec "$container" /usr/bin/aft health --ready; }
unhealthy() { ! healthy; }
healthcheck() { # what the image's HEALTHCHECK says; docker runs it by itself
    if [ $engine = podman ]; then podman --runtime runc healthcheck run "$container"; else healthy; fi
}
no_healthcheck() { ! healthcheck; }

echo "---- running"
check "it starts with a read-only root, without capabilities, within 512 MiB and one processor" \
    start --memory 512m --cpus 1 -e AFTD_DRAIN_DELAY_MS=8000
[ -n "$(process)" ] || end
check "it classifies a picture" ask '"label":"ship"' --data-binary @weights/models/cifar10-aft-conv/sample.jpg \
    "http://127.0.0.1:$port/classify?model=cifar10-aft-conv"
check "it generates a text" ask '"finish_reason":"length"' -d '{"prompt": "The history of ", "max_tokens": 20}' \
    "http://127.0.0.1:$port/generate"
check "its process is the image's user" status_of '^Uid:\s10001\s10001'
check "it has no capability" status_of '^CapEff:\s0000000000000000'
check "it can gain no privileges" status_of '^NoNewPrivs:\s1'
check "seccomp filters its system calls" status_of '^Seccomp:\s2'
check "it heeds the limit of processors" logged 'engine: 1 thread'
check "it heeds the limit of memory" logged 'memory: 512 MiB (control group)'
writes() { ! "$engine" exec "$container" /bin/sh -c 'echo x >/usr/x'; }
check "its files cannot be written" writes

echo "---- health"
check "the health check says yes" healthcheck
kill -STOP "$(process)"
check "it says no while the daemon hangs" no_healthcheck
kill -CONT "$(process)"
check "it says yes when the daemon goes on" healthcheck
$engine kill --signal TERM "$container" >/dev/null
sleep 0.5
check "it says no while the daemon drains" no_healthcheck
check "the daemon still answers then" ask '"status":"ok"' "http://127.0.0.1:$port/healthz"
exit_code() { [ "$($engine wait "$container")" = 0 ]; }
check "it ends with 0" exit_code

end
