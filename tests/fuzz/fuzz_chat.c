/* fuzz_chat.c - a body of any bytes to /v1/chat/completions is refused with a reason, or is a request of which every
 * value is in its bounds, and whose messages a template makes a prompt of. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "config/settings.h"
#include "server/api/openai_request.h"
#include "tests/fuzz/generation.h"

static char system_text[] = "{content}\n", user_text[] = "<{content}>", assistant_text[] = "{content}", reply[] = "A:";
static const struct chat_template template = {.roles = {system_text, user_text, assistant_text}, .reply = reply};

static void check_messages(const struct chat_messages *m)
{
    size_t contents = 0, frames = sizeof reply - 1;
    fuzz_check(m->count >= 1 && m->count <= CHAT_MESSAGES_MAX, "messages are few, and some");
    for (size_t i = 0; i < m->count; i++) {
        fuzz_check(m->list[i].role >= CHAT_SYSTEM && m->list[i].role < CHAT_ROLES, "a message has a role");
        contents += m->list[i].size;
        frames += strlen(template.roles[m->list[i].role]) - strlen("{content}");
    }
    fuzz_check(contents <= GENERATE_PROMPT_MAX, "contents are not too long");
    const size_t size = chat_template_write(&template, m->list, m->count, NULL);
    uint8_t *prompt = malloc(size);
    fuzz_check(prompt != NULL && size == contents + frames, "a prompt has all contents and what is around them");
    fuzz_check(chat_template_write(&template, m->list, m->count, prompt) == size, "a prompt is as long as it says");
    fuzz_check(memcmp(prompt + size - 2, reply, 2) == 0, "a prompt ends with the answer's beginning");
    free(prompt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_ARGUMENT};
    struct settings settings;
    struct openai_request r = {0};
    struct error err = {.message = ""};

    settings_init(&settings);
    const enum status st = openai_request_parse(&r, true, data, size, &settings, &err);
    if (st == OK) {
        fuzz_check(memchr(r.model, '\0', sizeof r.model) != NULL, "a model's name ends");
        fuzz_check_utf8(r.model, strlen(r.model));
        fuzz_check_generation(&r.in, &settings);
        fuzz_check(r.in.max_tokens >= 1 && r.in.stops.count <= CHAT_STOPS_MAX, "a chat's own bounds hold");
        fuzz_check(!r.include_usage || r.in.stream, "usage is a chunk's of a stream alone");
        fuzz_check(!r.echo && !r.in.prompt_logprobs && r.in.n == r.returned,
                   "nothing of completions alone is asked for");
        check_messages(&r.messages);
    } else {
        fuzz_check_error(st, &err, allowed, 1);
    }
    openai_request_clear(&r);
    return 0;
}
