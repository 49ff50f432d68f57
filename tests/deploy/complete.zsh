# complete.zsh LINE: what zsh, with the completions in deploy/completion, would put behind LINE when Tab is pressed, one
# candidate to a line. A second zsh runs at a terminal of its own, for only there it completes; compadd, which every
# completion ends in, also writes the candidates down.
zmodload zsh/zpty || exit 1
export ZDOTDIR=$(mktemp -d)
cat >$ZDOTDIR/.zshrc <<'END'
PS1= fpath=($PWD/deploy/completion $fpath)
autoload -Uz compinit && compinit -D -u
compadd() {
    local -a __candidates
    # With these, it is asked for something other than adding.
    if [[ ${@[1,(i)(-|--)]} != *-(O|A|D)\ * ]]; then
        builtin compadd -O __candidates "$@"
        (( $#__candidates )) && print -rl -- $__candidates >>$ZDOTDIR/found
    fi
    builtin compadd "$@"
}
finish() {
    zle complete-word
    exit
}
zle -N finish
bindkey '^I' finish
END
zpty inner zsh -d -i
zpty -w -n inner "$1"$'\t'
while zpty -r inner line; do :; done
cat $ZDOTDIR/found
rm -rf $ZDOTDIR
