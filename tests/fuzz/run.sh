#!/bin/sh
# run.sh DIR SECONDS [RUNS]: run every fuzz target of DIR for so long, or until it has run so many times, each on what it
# found worth keeping before (DIR/corpus), on a selection of that (tests/fuzz/corpus/TARGET.tar.xz, of keep.sh), on what
# once was a finding (tests/fuzz/corpus/TARGET/) and on seeds made here of the test data. Ends non-zero when one found a
# fault; the input is then in DIR/findings, and `DIR/fuzz_NAME FILE` repeats it. FUZZ_FLAGS go to libFuzzer as they are.
# SECONDS 0: on those inputs alone, once each, by targets that are built without libFuzzer (replay.c).
set -u
dir=$1 seconds=$2 runs=${3:--1}
seeds=$dir/seeds
rm -rf "$seeds"
mkdir -p "$dir/findings" "$seeds"

number() { # number VALUE BYTES: little-endian
    i=0
    while [ "$i" -lt "$2" ]; do
        # shellcheck disable=SC2059
        printf "\\$(printf %03o $((($1 >> (8 * i)) & 255)))"
        i=$((i + 1))
    done
}

seed_safetensors() { # a small file as it is; of all, the header and the size of the data, which the target makes up
    for file in tests/data/golden/*/model.safetensors weights/models/*/*.safetensors; do
        seed=$1/$(echo "$file" | tr / -)
        size=$(wc -c <"$file")
        header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
        data=$((size - 8 - header))
        if [ "$size" -le 65536 ]; then { number 0 1; cat "$file"; } >"$seed"; fi
        if [ "$data" -le 8192 ]; then
            { number 1 1; number "$data" 3; tail -c +9 "$file" | head -c "$header"; number 0 1; } >"$seed-made"
        fi
    done
}

seed_model_config() {
    for file in tests/data/golden/*/config.json weights/models/*/config.json; do
        cp "$file" "$1/$(echo "$file" | tr / -)"
    done
    template='{"system": "{content}\n", "user": "U: {content}\n", "assistant": "{content}", "reply": "A:", "stop": ["\n"]}'
    sed "\$s/}/, \"chat_template\": $(printf %s "$template" | sed 's/[\\&/]/\\&/g')}/" tests/data/golden/lm-simple/config.json >"$1/chat"
}

seed_picture() { # with what a model of 32 x 32 wants behind it
    for file in tests/data/images/*.jpg tests/data/images/formats/* tests/data/cifar/*.jpg; do
        { cat "$file"; number 31 1; number 31 1; number 0 1; number 31 2; } >"$1/$(echo "$file" | tr / -)"
    done
}

seed_inference() { # 65535: JSON alone; else where it ends
    { number 65535 2
        printf '{"id": "a", "inputs": [{"name": "image", "datatype": "BYTES", "shape": [2, 1], "data": [["YWI="], ["YQ=="]]}], "outputs": [{"name": "logits", "parameters": {"binary_data": true, "classification": 3}}], "parameters": {"timeout": 5000, "binary_data_output": true}}'; } >"$1/json"
    { number 65535 2
        printf '{"inputs": [{"name": "pixels", "datatype": "FP32", "shape": [1, 2, 1, 3], "data": [[[[1, 2.5, 3]], [[4, 5, 255]]]]}]}'; } >"$1/numbers"
    { number 105 2
        printf '{"inputs": [{"name": "image", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 7}}]}'; number 3 4; printf abc; } >"$1/binary"
}

seed_archive() { # as it is, a text of two bytes that are stored; behind a header, two blocks of code
    { number 0 1; printf aftz; number 2 4; number 2 8; number 0 24; number 2 2; printf ab; } >"$1/stored"
    { number 1 1; number 5 2; printf abcde; number 3 2; printf fgh; } >"$1/coded"
    { number 1 1; number 0 2; number 100 2; head -c 100 Makefile; } >"$1/one-stored"
}

seed_multipart() { # the header, a NUL, the body
    { printf 'multipart/form-data; boundary=b'; number 0 1
        printf -- '--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\nabc\r\n--b--\r\n'; } >"$1/one"
    { printf 'multipart/form-data; boundary="a b"'; number 0 1
        printf 'x\r\n--a b\r\nContent-Disposition: form-data; name=image\r\n\r\nabc\r\n--a b\r\nContent-Disposition: form-data; name=i\r\n\r\n--a b--'; } >"$1/two"
}

seed_headers() { # X-Forwarded-For; or traceparent
    printf '6.6.6.6, 192.0.2.1:80\n[2001:db8::7]:443, 10.0.0.2,\t2001:db9::1\nunknown, 10.0.0.3' >"$1/proxies"
    printf '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01' >"$1/trace"
    printf 'cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more' >"$1/later"
}

seed_request() {
    n=0
    while read -r line; do
        n=$((n + 1))
        printf '%s\n' "$line" >"$1/$n"
    done <<'END'
{"model": "enwik8-aft-conv", "prompt": "The history of ", "max_tokens": 64, "stream": true, "timeout_ms": 5000}
{"prompt_base64": "VGhlIGhpc3Rvcnkgb2Yg", "temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.05}
{"prompt": "\u00e4\ud83d\ude00\u0000", "repetition_penalty": 1.2, "seed": 9007199254740991}
{"prompt": "a", "stop": ["\n\n", "]]", "==", "\u00df"], "stream": false, "context_overflow": "shift"}
{"presence_penalty": -2, "frequency_penalty": 0.5, "logit_bias": {"0": -100, "255": 1e1}, "utf8": true, "allowed_bytes": [97, 195, 169]}
{"stop": "end", "seed": -1, "top_p": 0, "temperature": 1e400, "unknown": [[[{}]]]}
END
}

seed_openai() {
    n=0
    while read -r line; do
        n=$((n + 1))
        printf '%s\n' "$line" >"$1/$n"
    done <<'END'
{"model": "enwik8-aft-conv@1", "prompt": "The history of ", "max_tokens": 64, "stream": true, "stream_options": {"include_usage": true, "include_obfuscation": null}}
{"prompt": ["a", "", "\u00e4\u0000"], "n": 2, "best_of": 2, "logprobs": 5, "echo": true, "max_tokens": 0}
{"prompt": [[0, 97, 255], [13]], "stop": ["\n\n", "]]"], "seed": -9223372036854775808, "user": "me", "suffix": null}
{"prompt": [84, 104, 101], "stop": "end", "temperature": 0.5, "top_p": 0, "top_k": 3, "min_p": 0.1, "repetition_penalty": 1.3}
{"presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {}, "prompt": null, "logprobs": null, "n": 1}
{"best_of": 4, "n": 2, "presence_penalty": 1.5, "utf8": null, "allowed_bytes": "ab\u00e9", "logit_bias": {"97": 5, "98": -5}}
{"prompt": [[256]], "logit_bias": {"1": 5}, "suffix": "x", "best_of": 3, "seed": 1e400}
END
}

seed_chat() {
    n=0
    while read -r line; do
        n=$((n + 1))
        printf '%s\n' "$line" >"$1/$n"
    done <<'END'
{"model": "a@1", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}], "max_tokens": 5, "stream": true, "stream_options": {"include_usage": true}}
{"messages": [{"role": "developer", "content": [{"type": "text", "text": "\u00e4\u0000"}, {"type": "text", "text": "{content}"}]}], "logprobs": true, "top_logprobs": 3, "n": 2}
{"messages": [{"role": "assistant", "content": "", "refusal": null, "tool_calls": null}], "max_completion_tokens": 7, "stop": ["a", "bc"], "tools": [], "tool_choice": "none"}
{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "text"}, "modalities": ["text"], "functions": [], "function_call": "none", "audio": null, "seed": -1}
{"messages": [{"role": "tool", "content": [{"type": "image_url"}], "name": "a"}], "audio": {}, "top_logprobs": 1}
END
}

seed_text() { # stop strings "a" and "ab", or "aab" and "]]"; then the chunks' seed and the text
    { number 2 1; number 0 1; printf a; number 1 1; printf ab; number 7 1; printf 'xxabaab'; } >"$1/letters"
    { number 2 1; number 2 1; printf aab; number 1 1; printf ']]'; number 1 1; printf 'aaab aa]x]]'; } >"$1/overlaps"
    utf8='\342\202\254\303\244\360\237\230\200\355\240\200\340\200\300\257\364\220x'
    # shellcheck disable=SC2059
    { number 0 1; number 3 1; printf "$utf8"; } >"$1/utf8"
    { number 1 1; number 1 1; printf '\202\254'; number 5 1; printf '\342\202\254'; } >"$1/inside-a-character"
}

seed_host() { # the Host or Origin, a NUL, the setting
    { printf 'A.example.:8080'; number 0 1; printf 'auto, a.example,*.b.example'; } >"$1/name"
    { printf '[fe80::1%%25eth0]:80'; number 0 1; printf '[::1],10.0.0.1'; } >"$1/address"
    { printf 'https://b.localhost:3000'; number 0 1; printf '*'; } >"$1/origin"
}

seed_session_request() {
    printf '{"model": "enwik8-aft-conv", "prompt": "ab", "seed": 1, "temperature": 0.5, "ttl_s": 60, "context_overflow": "shift"}' >"$1/all"
    printf '{"state": "YWI=", "model": "a@2", "top_k": 4, "top_p": 0.5, "min_p": 0.1, "repetition_penalty": 1.1, "utf8": false, "allowed_bytes": "a"}' >"$1/state"
}

seed_keys_file() {
    hash=0123456789abcdef0123456789abcdef
    printf '{"keys": [{"name": "a", "sha256": "%s%s", "apis": ["native", "openai"], "models": ["m"], "requests_per_s": 1.5, "bytes_per_s": 1000}]}' \
        "$hash" "$hash" >"$1/one"
    printf '{"keys": []}' >"$1/none"
}

seed_config() { # the file, a NUL, NAME=VALUE of a flag and of a variable
    cp config/aftd.json "$1/shipped"
    { cat config/aftd.json; number 0 1; printf 'listen-port=80'; } >"$1/flag"
    { printf '{"log_level": "debug", "hosts": "*", "threads": 2}'; number 0 1; printf 'LOG_LEVEL=info'; } >"$1/variable"
}

seed_state_blob() { # pending, sampler and a few numbers of a state, with the checksum made to fit or not
    for fit in 0 1; do
        {
            number $fit 1
            printf aftdstat
            number 2 4
            number 1 4
            number 0 264
            number 16256 2 # 1.0 as the upper half of a float32, a few times
            head -c 128 Makefile
        } >"$1/$fit"
    done
    { # made to fit, with numbers that a sampler takes
        number 1 1
        number 0 208
        number 7 16
        for value in 1065353216 1065353216 0 1065353216; do number $value 4; done
        number 3 8
        number 5 8
        number 0 64
        head -c 64 Makefile
        number 0 32
    } >"$1/sound"
}

# The words of a parser as libFuzzer's dictionary: what its source has in quotes, in quotes.
words() { # words FILE...
    grep -oh '"[A-Za-z_][A-Za-z0-9_-]*"' "$@" /dev/null | sort -u | sed 's/"\(.*\)"/"\\"\1\\""/'
}
words weights/model_config.c >"$seeds/model_config.dict"
words weights/safetensors.c weights/tensor.c >"$seeds/safetensors.dict"
words server/api/inference_request.c server/api/inference_request.h >"$seeds/inference.dict"
words server/api/generate_request.c >"$seeds/request.dict"
words server/api/openai_request.c >"$seeds/openai.dict"
words server/api/openai_request.c server/api/chat_messages.c >"$seeds/chat.dict"
words server/api/generate_request.c >"$seeds/session_request.dict"
words server/access/keys_file.c >"$seeds/keys_file.dict"
grep -oh '^ *[A-Z_]*([a-z_]*,' config/settings.h | sed 's/.*(\(.*\),/"\1"/' | sort -u >"$seeds/config.dict"
words server/fields/multipart.c >"$seeds/multipart.dict"

seed_session_record() { # a header that is made to fit or not, and the beginning of a state
    for fit in 0 1; do
        {
            number $fit 1
            number 0 20
            number 0 4
            number 1 4
            number 0 4
            number 1 8
            number 1 8
            number 4096 8
            number 4 4
            printf 0123456789abcdefam
            number 0 32
            printf aftdstat
            number 5 4
            number 0 1408
        } >"$1/$fit"
    done
}

# libpng asks for what a chunk says to be long, up to 2 GB, before it reads any of it: for the sanitizer's books of that
# nearly all time would be spent. It may be refused as well; no picture that is read takes 256 MB.
picture_options=max_allocation_size_mb=256:allocator_may_return_null=1
asan_options=${ASAN_OPTIONS:-}

passed=0 failed=0
for program in "$dir"/fuzz_*; do
    target=${program##*/fuzz_}
    corpus=$dir/corpus/$target log=$dir/$target.log dictionary=
    kept=tests/fuzz/corpus/$target
    mkdir -p "$corpus" "$seeds/$target" "$seeds/kept/$target"
    if [ -f "$kept.tar.xz" ]; then tar -C "$seeds/kept/$target" -xJf "$kept.tar.xz" || exit 1; fi
    "seed_$target" "$seeds/$target" || exit 1
    [ -f "$seeds/$target.dict" ] && dictionary=-dict=$seeds/$target.dict
    if [ "$target" = picture ]; then export ASAN_OPTIONS="$asan_options:$picture_options"; else export ASAN_OPTIONS="$asan_options"; fi
    if [ "$seconds" -eq 0 ]; then
        # shellcheck disable=SC2046 # one word or none
        if timeout 300 "$program" "$corpus" "$seeds/$target" "$seeds/kept/$target" $([ -d "$kept" ] && echo "$kept") >"$log" 2>&1; then
            passed=$((passed + 1))
            echo "$target: nothing found, $(tail -n 1 "$log")"
        else
            failed=$((failed + 1))
            echo "$target: FOUND SOMETHING"
            tail -n 60 "$log"
        fi
        continue
    fi
    # shellcheck disable=SC2086
    if "$program" -max_total_time="$seconds" -runs="$runs" -rss_limit_mb=2048 -timeout=60 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="$dir/findings/$target-" $dictionary ${FUZZ_FLAGS:-} "$corpus" "$seeds/$target" "$seeds/kept/$target" $([ -d "$kept" ] && echo "$kept") \
        >"$log" 2>&1; then
        passed=$((passed + 1))
        echo "$target: nothing found, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs" \
            "($(sed -n 's/^stat::average_exec_per_sec: *//p' "$log") per second)," \
            "$(sed -n 's/^#.*DONE *cov: \([0-9]*\).*/\1/p' "$log") places reached"
    else
        failed=$((failed + 1))
        echo "$target: FOUND SOMETHING"
        tail -n 60 "$log"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
