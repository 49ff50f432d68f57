# Made by "make man" from aft.bash.in and the tables of the code: change those.
# Completion of aft's command line in bash: verbs, their options, models by name, files.

_aft_verbs='
classify
explain
generate
complete
score
compress
decompress
models
inspect
verify
check-precision
evaluate
bench
key
load
health
ps
cancel
top
'

# What a verb takes, into `arguments` and `options` of the caller.
_aft_verb() {
    case $1 in
    classify)
        arguments='model file...'
        options='-h --help
            -k=text --top-k=text
            --json
            --files-from=file
            --texts
            -0 --null
            --size=text
            --tokens-max=text
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            -m=model --model=model
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    explain)
        arguments='model file'
        options='-h --help
            -o=file --output=file
            --view=text
            --layer=text
            --head=text
            --row=text
            --side=text
            --size=text
            --tokens-max=text
            --json
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            -m=model --model=model
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    generate)
        arguments='model text'
        options='-h --help
            -p=text --prompt=text
            --prompt-file=file
            -n=text --max-tokens=text
            --stop=text
            --echo
            --context-overflow=shift|stop
            --temperature=text
            -k=text --top-k=text
            --top-p=text
            --min-p=text
            -s=text --seed=text
            --repetition-penalty=text
            --presence-penalty=text
            --frequency-penalty=text
            --utf8
            --retries=text
            --json
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            -m=model --model=model
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    complete)
        arguments='model file'
        options='-h --help
            -o=file --output=file
            --rows=text
            --samples=text
            --scale=text
            --temperature=text
            -k=text --top-k=text
            --top-p=text
            --min-p=text
            -s=text --seed=text
            --json
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            -m=model --model=model
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    score)
        arguments='model file'
        options='-h --help
            --json
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            -m=model --model=model
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    compress)
        arguments='model file'
        options='-h --help
            -o=file --output=file
            --timeout=text
            --json
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            -m=model --model=model
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    decompress)
        arguments='model file'
        options='-h --help
            -o=file --output=file
            --timeout=text
            --json
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            -m=model --model=model
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    models)
        arguments='file...'
        options='-h --help
            --json
            --precision=f32|bf16|int8|auto
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    inspect)
        arguments='model'
        options='-h --help
            --json
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            -m=model --model=model
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    verify)
        arguments='model...'
        options='-h --help
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            --tolerance=text
            --json' ;;
    check-precision)
        arguments='model file'
        options='-h --help
            --write
            --force
            -t=text --threads=text
            --json' ;;
    evaluate)
        arguments='model file'
        options='-h --help
            --confusion=file
            --past=text
            --size=text
            --tokens-max=text
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            --json' ;;
    bench)
        arguments='model'
        options='-h --help
            --synthetic=text
            -t=text --threads=text
            --precision=f32|bf16|int8|auto
            --runs=text
            --positions=text
            --json' ;;
    key)
        arguments='add|list|remove text'
        options='-h --help
            -f=file --file=file
            --models=text
            --apis=text
            -r=text --rate=text
            --bytes-rate=text
            --priority-max=text
            --json' ;;
    load)
        arguments='text file...'
        options='-h --help
            --concurrency=text
            -r=text --rate=text
            --find-rate
            --p99=text
            -d=text --duration=text
            --requests=text
            --warmup=text
            --timeout=text
            -s=text --seed=text
            -p=text --prompt=text
            --prompt-file=file
            --prompt-bytes=text
            -n=text --max-tokens=text
            --temperature=text
            --no-stream
            -m=text --model=text
            --header=text
            --json
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    health)
        arguments=''
        options='-h --help
            --ready
            --timeout=text
            --json
            -c=file --config=file
            --url=text
            --unix=file
            --ca-file=file' ;;
    ps)
        arguments=''
        options='-h --help
            --json
            -c=file --config=file
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    cancel)
        arguments='text...'
        options='-h --help
            --json
            -c=file --config=file
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    top)
        arguments=''
        options='-h --help
            --once
            --count=text
            --json
            -c=file --config=file
            --url=text
            --unix=file
            --ca-file=file
            --key=text' ;;
    *) arguments='' options='' ;;
    esac
}

# The kind of an option's value, into `kind` of the caller; false if the option takes none.
_aft_option() {
    local entry
    for entry in $options; do
        [[ $entry == "$1"=* ]] && kind=${entry#*=} && return
    done
    return 1
}

# The models that are found by name.
_aft_models() {
    local dir config
    for dir in ${AFTD_MODELS_DIR:+"$AFTD_MODELS_DIR"} weights/models /usr/local/share/aftd/models; do
        for config in "$dir"/*/config.json; do
            [[ -f $config ]] || continue
            config=${config%/config.json}
            echo "${config##*/}"
        done
    done
}

_aft_value() { # _aft_value KIND WORD
    case $1 in
    file)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
    model)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <({ compgen -W "$(_aft_models)" -- "$2"; compgen -d -- "$2"; } | sort -u) ;;
    *'|'*) mapfile -t COMPREPLY < <(compgen -W "$(tr '|' ' ' <<<"$1")" -- "$2") ;;
    esac
}

_aft() {
    local word=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}
    local arguments options kind remote='' position=0 i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$_aft_verbs --help --version" -- "$word")
        return
    fi
    _aft_verb "${COMP_WORDS[1]}"
    # An equals sign is a word of its own, and so --seed=1 is three.
    if [[ $word == = ]]; then
        word=
    elif [[ $option == = ]]; then
        option=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    if _aft_option "$option"; then
        _aft_value "$kind" "$word"
        return
    fi
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(for i in $options; do compgen -W "${i%%=*}" -- "$word"; done)
        return
    fi
    for ((i = 2; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --url | --unix) remote=yes ;;&
        =) ((i++)) ;;
        -?*) _aft_option "${COMP_WORDS[i]}" && [[ ${COMP_WORDS[i + 1]} != = ]] && ((i++)) ;;
        *) ((position++)) ;;
        esac
    done
    set -- $arguments
    [[ $remote && $1 == model ]] && shift # a daemon is asked, which has models of its own
    while ((position > 0 && $# > 0)) && [[ $1 != *... ]]; do
        shift
        ((position--))
    done
    _aft_value "${1%...}" "$word"
}

complete -F _aft aft
