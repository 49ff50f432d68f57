/* reload_report.c - see reload_report.h. */
#include "server/control/reload_report.h"

void reload_report_clear(struct reload_report *r)
{
    hosting_report_clear(&r->models);
}

static json_t *describe_settings(const bool which[SETTING_COUNT])
{
    json_t *names = json_array();
    int failed = names == NULL;
    for (size_t id = 0; id < SETTING_COUNT; id++)
        if (which[id])
            failed |= json_array_append_new(names, json_string(setting_at(id)->name));
    if (failed == 0)
        return names;
    json_decref(names);
    return NULL;
}

static json_t *describe_row(const struct hosting_row *row)
{
    if (row->outcome == HOSTING_FAILED)
        return json_pack("{s:s, s:s}", "model", row->model, "message", row->message);
    return json_string(row->model);
}

static json_t *describe_models(const struct hosting_report *r)
{
    json_t *whole = json_object();
    int failed = whole == NULL;
    for (enum hosting_outcome outcome = 0; outcome < HOSTING_OUTCOME_COUNT; outcome++) {
        json_t *list = json_array();
        for (size_t i = 0; i < r->count; i++)
            if (r->rows[i].outcome == outcome)
                failed |= json_array_append_new(list, describe_row(&r->rows[i]));
        failed |= json_object_set_new(whole, hosting_outcome_word(outcome), list);
    }
    if (failed == 0)
        return whole;
    json_decref(whole);
    return NULL;
}

json_t *reload_report_describe(const struct reload_report *r)
{
    return json_pack("{s:o, s:o, s:I, s:b, s:o}", "changed", describe_settings(r->changed), "restart",
                     describe_settings(r->restart), "keys", (json_int_t)r->keys, "certificate", (int)r->certificate,
                     "models", describe_models(&r->models));
}
