/* test_mixer_table.c - what a mixer's row in weights/mixers.h says and what its file in engine/mixers/ provides belong
 * together. A mixer whose row names a form that its file lacks, or the other way round, fails here by its word. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "engine/kernels/kernels.h"
#include "engine/pass/mixer.h"

/* A rule about the mixer `type`. */
#define EXPECT(rule)                                          \
    do {                                                      \
        if (!(rule)) {                                        \
            fail_msg("%s: %s", mixer_type_name(type), #rule); \
            return;                                           \
        }                                                     \
    } while (0)

static void a_causal_form_is_there_where_the_row_says_so(void **state)
{
    (void)state;
    for (enum mixer_type type = 0; type < MIXER_COUNT; type++) {
        const struct mixer *m = kernels_select(NULL)->mixers[type];
        const bool is_causal = mixer_facts(type)->streams != STREAMS_NONE;
        EXPECT((m->mix_streams != NULL) == is_causal);
        EXPECT((m->layer_floats != NULL) == is_causal && (m->walk_state != NULL) == is_causal);
    }
}

static void every_mixer_classifies(void **state)
{
    (void)state;
    for (enum mixer_type type = 0; type < MIXER_COUNT; type++) {
        const struct mixer *m = kernels_select(NULL)->mixers[type];
        EXPECT(m->mix_sequences != NULL && m->plan_scratch != NULL);
        EXPECT(m->macs != NULL);
    }
}

static void what_is_told_of_keys_and_biases_is_there(void **state)
{
    (void)state;
    for (enum mixer_type type = 0; type < MIXER_COUNT; type++) {
        const struct mixer *m = kernels_select(NULL)->mixers[type];
        const struct mixer_facts *f = mixer_facts(type);
        EXPECT(f->biases == BIASES_NONE || (m->biases_shape != NULL && m->read_biases != NULL));
        EXPECT(m->key_norm == NULL || f->keys == KEYS_ARE_VECTORS);
        EXPECT(m->pack == NULL || m->plan != NULL);
        EXPECT(f->tensors[0].name == NULL || m->pack != NULL);
    }
}

static void rows_do_not_contradict_themselves(void **state)
{
    (void)state;
    for (enum mixer_type type = 0; type < MIXER_COUNT; type++) {
        const struct mixer_facts *f = mixer_facts(type);
        EXPECT(f->keys != KEYS_PER_HEAD || mixer_has(type, OPTION_HEADS));
        EXPECT(f->biases != BIASES_PER_OFFSET || (mixer_has(type, OPTION_HEADS) && mixer_has(type, OPTION_KERNEL)));
        EXPECT(f->biases != BIASES_PER_PAIR || f->streams != STREAMS_ENDLESS);
        for (enum mixer_type other = 0; other < type; other++)
            EXPECT(strcmp(f->word, mixer_type_name(other)) != 0);
        for (size_t i = 0; i < MIXER_TENSORS_MAX && f->tensors[i].name != NULL; i++)
            EXPECT(f->tensors[i].rank >= 1 && f->tensors[i].rank <= MIXER_TENSOR_RANK_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_causal_form_is_there_where_the_row_says_so),
        cmocka_unit_test(every_mixer_classifies),
        cmocka_unit_test(what_is_told_of_keys_and_biases_is_there),
        cmocka_unit_test(rows_do_not_contradict_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
