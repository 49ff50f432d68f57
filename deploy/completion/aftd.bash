# Made by "make man" from aftd.bash.in and the tables of the code: change those.
# Completion of aftd's command line in bash: flags, and the values of those that choose from a few words or name files.

_aftd_options='
    --config=file
    --check-config
    --print-config
    --help
    --version
    --listen-address=text
    --listen-port=text
    --listen-unix=file
    --listen-unix-mode=text
    --admin-address=text
    --admin-port=text
    --admin-unix=file
    --metrics-address=text
    --metrics-port=text
    --tls-certificate=file
    --tls-key=file
    --keys-file=file
    --trusted-proxies=text
    --cors-origins=text
    --hosts=text
    --metrics-open=true|false
    --model=file
    --models-dir=file
    --models-lazy=true|false
    --models-broken=skip|refuse
    --default-models=text
    --aliases=text
    --memory-max-mb=text
    --models-memory-max-mb=text
    --threads=text
    --pin-threads=true|false
    --isa=text
    --precision=text
    --streams-max=text
    --parking-mb=text
    --pass-rows-max=text
    --prefix-cache-mb=text
    --prefix-cache-bytes=text
    --prefix-cache-shared=true|false
    --batch-images-max=text
    --batch-wait-us=text
    --picture-step-us=text
    --picture-tokens-max=text
    --picture-threads=text
    --pictures-memory-max-mb=text
    --queue-jobs-max=text
    --priority-max=text
    --sessions-max=text
    --sessions-per-key-max=text
    --sessions-memory-max-mb=text
    --sessions-dir=file
    --sessions-stored-max=text
    --sessions-dir-max-mb=text
    --sessions-sync=true|false
    --sessions-redis=text
    --sessions-redis-password-file=file
    --sessions-redis-prefix=text
    --sessions-redis-timeout-ms=text
    --sessions-lease-ms=text
    --replica=text
    --session-cookie=true|false
    --session-ttl-s=text
    --http-threads=text
    --connections-max=text
    --connections-per-address-max=text
    --receive-timeout-ms=text
    --idle-timeout-ms=text
    --body-bytes-max=text
    --bodies-memory-max-mb=text
    --answers-memory-max-mb=text
    --timeout-ms=text
    --timeout-ms-max=text
    --max-tokens=text
    --max-tokens-max=text
    --stream-buffer-bytes=text
    --ping-ms=text
    --drain-delay-ms=text
    --drain-timeout-ms=text
    --drain-idle-ms=text
    --stuck-after-ms=text
    --log-level=error|warning|info|debug
    --log-format=text|json
    --page=true|false
    --log-requests=true|false
    --log-clients=true|false
'

_aftd() {
    local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]} entry
    COMPREPLY=()
    # An equals sign is a word of its own, and so --isa=au is three.
    if [[ $word == = ]]; then
        word=
    elif [[ $option == = ]]; then
        option=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    for entry in $_aftd_options; do
        [[ $entry == "$option"=* ]] || continue
        case ${entry#*=} in
        file)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        text) ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$(tr '|' ' ' <<<"${entry#*=}")" -- "$word") ;;
        esac
        return
    done
    mapfile -t COMPREPLY < <(for entry in $_aftd_options; do compgen -W "${entry%%=*}" -- "$word"; done)
}

complete -F _aftd aftd
