/* nearest.c - see nearest.h. */
#include "config/nearest.h"

#include <string.h>

/* What llama-server and llama-cli, Ollama, TGI, vLLM and OpenAI's chat call it, and what it is here. */
static const char *const other_names[][2] = {
    {"n_predict", "max_tokens"},
    {"num_predict", "max_tokens"},
    {"max_new_tokens", "max_tokens"},
    {"max_completion_tokens", "max_tokens"},
    {"max_output_tokens", "max_tokens"},
    {"max_length", "max_tokens"},
    {"repeat_penalty", "repetition_penalty"},
    {"n_probs", "logprobs"},
    {"top_logprobs", "logprobs"},
    {"stop_sequences", "stop"},
    {"reverse_prompt", "stop"},
    {"file", "prompt_file"},
    {"input", "prompt"},
    {"inputs", "prompt"},
    {"text", "prompt"},
    {"prompt", "text"},
    {"prompt", "input"},
    {"text", "input"},
    {"timeout", "timeout_ms"},
    {"port", "listen_port"},
    {"host", "listen_address"},
    {"bind", "listen_address"},
    {"ttl", "ttl_s"},
};

static char plain(char c)
{
    return (char)(c == '-' ? '_' : c);
}

/* Do both begin with the same `length` bytes, but for '-' and '_'? */
static bool begins(const char *a, const char *b, size_t length)
{
    size_t i = 0;
    while (i < length && b[i] != '\0' && plain(a[i]) == plain(b[i]))
        i++;
    return i == length;
}

bool nearest_is(const char *written, size_t length, const char *name)
{
    return strlen(name) == length && begins(written, name, length);
}

static bool is_other_name(const struct nearest *n, const char *name)
{
    for (size_t i = 0; i < sizeof other_names / sizeof other_names[0]; i++)
        if (nearest_is(n->written, n->length, other_names[i][0]) && nearest_is(name, strlen(name), other_names[i][1]))
            return true;
    return false;
}

/* The fewest bytes to insert, delete or replace (Levenshtein 1966), row by row of the usual matrix. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t row[NEAREST_NAME_MAX + 1];
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            const size_t replaced = diagonal + (plain(a[i - 1]) != plain(b[j - 1]) ? 1 : 0);
            const size_t inserted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < inserted ? replaced : inserted;
        }
    }
    return row[b_length];
}

struct nearest nearest_to(const char *written, size_t length)
{
    /* with more than a third wrong it is another word, and a short one is with more than a letter */
    return (struct nearest){.written = written, .length = length, .distance = length < 6 ? 2 : length / 3 + 1};
}

void nearest_offer(struct nearest *n, const char *name)
{
    const size_t length = strlen(name);
    if (n->length > NEAREST_NAME_MAX || length > NEAREST_NAME_MAX || n->distance == 0)
        return;
    size_t d = distance(n->written, n->length, name, length);
    if (is_other_name(n, name))
        d = 0;
    else if (n->length >= 3 && d > 1 && begins(n->written, name, n->length))
        d = 1;
    if (d < n->distance && d < length) {
        n->distance = d;
        n->name = name;
    }
}
