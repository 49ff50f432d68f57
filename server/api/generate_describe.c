/* generate_describe.c - see generate_describe.h. */
#include "server/api/generate_describe.h"

#include <math.h>
#include <stdlib.h>

#include "server/api/reply.h"
#include "server/models/hosted_model.h"
#include "server/session/state_blob.h"

json_t *generate_describe_usage(const struct job *j)
{
    const struct job_result *r = job_result(j);
    const json_int_t prompt = (json_int_t)job_given(j), generated = r->generated;
    return json_pack("{s:I, s:I, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", generated, "total_tokens",
                     prompt + generated, "prompt_tokens_dropped", (json_int_t)generate_job_of(j)->prompt_dropped);
}

/* {"byte", "logprob"}, the latter null if it is not known; NULL for want of memory. */
static json_t *describe_byte(uint8_t byte, float logprob)
{
    return json_pack("{s:i, s:o}", "byte", (int)byte, "logprob",
                     isnan(logprob) ? json_null() : json_real((double)logprob));
}

int generate_append_logprobs(json_t *list, const struct text_piece *p, size_t numbers)
{
    int failed = 0;
    for (size_t i = 0; i < p->size; i++) {
        const float *logprobs = p->logprobs + i * numbers;
        json_t *byte = describe_byte(p->bytes[i], logprobs[0]);
        if (numbers > 1) {
            json_t *top = json_array();
            for (size_t k = 1; k < numbers && !isnan(logprobs[0]); k++)
                failed |=
                    json_array_append_new(top, describe_byte(p->likeliest[i * (numbers - 1) + k - 1], logprobs[k]));
            failed |= json_object_set_new(byte, "top", top);
        }
        failed |= json_array_append_new(list, byte);
    }
    return failed;
}

json_t *generate_describe_state(const struct job *j)
{
    uint8_t *blob;
    size_t size;
    const struct generate_job *generated = generate_job_of(j);
    if (!generated->has_saved)
        return json_null();
    if (state_blob_make(&blob, &size, &generated->saved, &j->model->identity, NULL) != OK)
        return NULL;
    json_t *value = reply_base64(blob, size);
    free(blob);
    return value;
}
