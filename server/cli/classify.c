/* classify.c - aft classify MODEL FILE..., or FILE... and a daemon: probabilities and labels of pictures, or of texts
 * where the model classifies those. A file that is alone has a line for each label; of many, each has one line that
 * begins with its path, so that scripts can read them. Single threaded. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/json_memory.h"
#include "engine/logits.h"
#include "server/cli/cli.h"
#include "server/cli/pictures.h"
#include "server/cli/remote.h"
#include "server/media/picture.h"
#include "server/media/picture_fit.h"

enum { LABELS = 5, LABELS_OF_MANY = 1 };

/* What the command line says, and who answers. */
struct classifier {
    const char *files_from;
    struct cli_engine with; /* unless a daemon is asked */
    uint64_t top_k;         /* 0: not given */
    bool json, nul;         /* nul: it ends the names in files_from, in place of a newline */
    bool many;              /* a line for each file */
    bool is_text;           /* files are texts: a daemon's model is not known here */
    struct remote remote;
    const struct model *model; /* unless a daemon is asked */
    struct engine *engine;
    struct prediction *best; /* [top_k] */
    int code;
};

/* ---- what is printed -------------------------------------------------------------------------------------------- */

static void print_text(const struct classifier *c, const char *path, const json_t *predictions)
{
    const json_t *each;
    size_t i;
    if (c->many)
        cli_print_field(stdout, path);
    json_array_foreach(predictions, i, each)
    {
        const char *label = json_string_value(json_object_get(each, "label"));
        const double probability = json_number_value(json_object_get(each, "probability"));
        (void)printf("%s%.4f\t", c->many ? "\t" : "", probability);
        cli_print_field(stdout, label);
        (void)printf("%s", c->many ? "" : "\n");
    }
    if (c->many)
        (void)putchar('\n');
}

/* Takes `predictions`, a list of objects with label, index and probability; NULL: there was no memory for it. */
static int print_answer(const struct classifier *c, const char *path, const char *model, json_t *predictions)
{
    int code = CLI_OK;
    if (predictions == NULL)
        return cli_fail("out of memory");
    if (c->json)
        code = cli_print_json(json_pack("{s:o, s:s, s:O}", "path", cli_json_text(path, strlen(path)), "model", model,
                                        "predictions", predictions));
    else
        print_text(c, path, predictions);
    json_decref(predictions);
    return code == CLI_OK && c->many ? cli_flush() : code; /* the next one takes a while */
}

/* ---- by an engine of our own ------------------------------------------------------------------------------------ */

/* CLI_FAILED, and why is printed, if the file cannot be read or the model's logits are not finite. */
static int compute_text(const struct classifier *c, const char *path)
{
    const uint32_t most = engine_info(c->engine)->elements_max;
    uint8_t *bytes = NULL;
    size_t size = 0;
    int code = cli_read(&bytes, &size, path, SCORE_FILE_MAX);
    if (code != CLI_OK)
        return code;
    if (size < 1 || size > most) {
        free(bytes);
        return cli_fail("%s has %zu bytes, expected 1 to %u, as many as %s takes", cli_file_name(path), size, most,
                        c->model->name);
    }
    engine_texts_begin(c->engine, (const uint8_t *const[]){bytes}, 1, (uint32_t)size);
    free(bytes);
    while (!engine_batch_step(c->engine))
        ;
    return cli_check_logits(engine_batch_logits(c->engine, 0), c->model->config.classes);
}

static int compute(const struct classifier *c, const char *path)
{
    if (c->model->config.task == TASK_TEXT_CLASSIFICATION)
        return compute_text(c, path);
    const struct picture_options options = {.shorter = picture_fit_shorter(c->with.size, &c->model->config)};
    struct picture picture = {0};
    struct picture_fit fit;
    int code = cli_read_picture(&picture, path, &options);
    if (code == CLI_OK)
        code = cli_see_picture(&fit, c->engine, c->model, c->with.size, &picture, path, NULL, NULL);
    picture_clear(&picture);
    return code;
}

static int classify_one(struct classifier *c, const char *path)
{
    const struct model_config *config = &c->model->config;
    const size_t shown = c->top_k < config->classes ? (size_t)c->top_k : config->classes;
    if (compute(c, path) != CLI_OK)
        return CLI_FAILED;
    logits_top(c->best, shown, engine_batch_logits(c->engine, 0), config->classes);
    json_t *predictions = json_array();
    bool lost = false;
    for (size_t i = 0; i < shown; i++)
        lost |= json_array_append_new(
                    predictions, json_pack("{s:s, s:i, s:f}", "label", config->labels[c->best[i].index], "index",
                                           (int)c->best[i].index, "probability", (double)c->best[i].probability)) != 0;
    return print_answer(c, path, c->model->name, json_unless(lost, predictions));
}

/* ---- by a daemon ------------------------------------------------------------------------------------------------ */

/* A text as the daemon takes it: free *ret. */
static int text_body(char **ret, const char *path)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    int code = cli_read(&bytes, &size, path, HTTP_BODY_MAX);
    if (code != CLI_OK)
        return code;
    bool lacked_memory = false;
    json_t *text = json_make_text((const char *)bytes, size, &lacked_memory),
           *object = json_pack("{s:O?}", "text", text);
    *ret = text != NULL ? json_print(object, JSON_COMPACT) : NULL;
    if (*ret == NULL)
        code = text == NULL && !lacked_memory ? cli_fail("%s is no text in UTF-8", cli_file_name(path))
                                              : cli_fail("out of memory");
    json_decref(text);
    json_decref(object);
    free(bytes);
    return code;
}

static int ask_one(const struct classifier *c, const char *path)
{
    char top_k[24];
    json_t *answer = NULL, *predictions, *each;
    const char *model = NULL, *label;
    double probability;
    size_t i;
    (void)snprintf(top_k, sizeof top_k, "%" PRIu64, c->top_k);
    const struct remote_parameter query[] = {
        {"model", c->remote.model, false}, {"size", c->with.size, false}, {"top_k", top_k, false}};
    struct remote_request request = {
        .path = "/classify", .query = query, .query_count = sizeof query / sizeof query[0], .file = path};
    char *text = NULL;
    int code = c->is_text ? text_body(&text, path) : CLI_OK;
    if (text != NULL) {
        request.type = "application/json";
        request.body = text;
        request.size = strlen(text);
    }
    if (code == CLI_OK)
        code = remote_post_json(&c->remote, &request, &answer);
    free(text);
    if (code != CLI_OK)
        return code;
    if (json_unpack(answer, "{s:s, s:o}", "model", &model, "predictions", &predictions) != 0)
        code = cli_fail("the daemon's answer has no model or no predictions");
    else
        json_array_foreach(predictions, i, each)
        {
            if (code == CLI_OK && json_unpack(each, "{s:F, s:s}", "probability", &probability, "label", &label) != 0)
                code = cli_fail("the daemon's answer has a prediction without label or probability");
        }
    if (code == CLI_OK)
        code = print_answer(c, path, model, json_incref(predictions));
    json_decref(answer);
    return code;
}

/* ---- which pictures --------------------------------------------------------------------------------------------- */

/* A picture that fails does not stop the others. False: nothing else would succeed. */
static bool take(struct classifier *c, const char *path)
{
    const int code = c->remote.asks ? ask_one(c, path) : classify_one(c, path);
    c->code = code != CLI_OK ? code : c->code;
    return code != CLI_USAGE;
}

static bool take_all(struct classifier *c, const struct cli_pictures *p)
{
    bool goes_on = true;
    struct cli_progress progress = {.on = false};
    if (p->count > 1 && cli_output_goes_to_file())
        progress = cli_progress_begin(p->count);
    for (size_t i = 0; i < p->count && goes_on; i++) {
        goes_on = take(c, p->paths[i]);
        cli_progress_show(&progress, i + 1, c->is_text ? "texts" : "pictures");
    }
    cli_progress_end(&progress);
    return goes_on;
}

/* What arguments, or a line of --files-from, name. */
static bool take_named(struct classifier *c, char **paths, int count)
{
    struct cli_pictures found = {.count = 0};
    for (int i = 0; i < count; i++)
        if ((c->is_text ? cli_files_add : cli_pictures_add)(&found, paths[i], false) != CLI_OK)
            c->code = CLI_FAILED;
    const bool goes_on = take_all(c, &found);
    cli_pictures_clear(&found);
    return goes_on;
}

/* The next name of a list, without what ends it: CLI_OK, or it is not one, and why is printed. *more: there was one. */
static int read_name(char path[PATH_MAX], bool *more, FILE *list, const char *of, int end)
{
    size_t size = 0;
    int c;
    errno = 0;
    while ((c = getc_unlocked(list)) != EOF && c != end) {
        if (size == PATH_MAX - 1)
            return cli_fail("%s: a name has more than %d bytes", of, PATH_MAX - 1);
        if (c == '\0')
            return cli_fail("%s: a name has a NUL byte; with -0, names end with NUL", of);
        path[size++] = (char)c;
    }
    if (c == EOF && ferror(list) != 0)
        return cli_fail("%s: %s", of, strerror(errno));
    path[size] = '\0';
    *more = c != EOF || size > 0;
    return CLI_OK;
}

/* Each as soon as its name is read: the list may be still in the making. */
static void take_list(struct classifier *c)
{
    const bool standard = strcmp(c->files_from, "-") == 0;
    const char *of = cli_file_name(c->files_from);
    FILE *list = standard ? stdin : fopen(c->files_from, "re");
    char path[PATH_MAX] = "";
    bool more = list != NULL;
    if (list == NULL)
        c->code = cli_fail("%s: %s", of, strerror(errno));
    while (more) {
        if (read_name(path, &more, list, of, c->nul ? '\0' : '\n') != CLI_OK) {
            c->code = CLI_FAILED;
            break;
        }
        if (more && path[0] != '\0' && !take_named(c, &(char *){path}, 1))
            break;
    }
    if (list != NULL && !standard)
        (void)fclose(list);
}

static int classify_run(struct classifier *c, char **paths, int count)
{
    c->many = count > 1 || c->files_from != NULL || (count == 1 && cli_is_folder(paths[0]));
    if (c->top_k == 0)
        c->top_k = c->many && !c->json ? LABELS_OF_MANY : LABELS;
    c->best = malloc((size_t)c->top_k * sizeof *c->best);
    if (c->best == NULL)
        return cli_fail("out of memory");
    if (take_named(c, paths, count) && c->files_from != NULL)
        take_list(c);
    free(c->best);
    return c->code;
}

/* ---- the verb --------------------------------------------------------------------------------------------------- */

static int classify_parse(struct classifier *c, int argc, char **argv, int *count)
{
    const struct cli_option options[] = {
        {"top-k", CLI_UNSIGNED, &c->top_k, 1, CLASSIFY_TOP_K_MAX, "N", "5; 1 of many files",
         "how many labels to print"},
        CLI_JSON_OPTION(&c->json){"files-from", CLI_TEXT, (void *)&c->files_from, 0, 0, "FILE", NULL,
                                  "read names of files from a file, one a line; - is standard input"},
        {"texts", CLI_FLAG, &c->is_text, 0, 0, NULL, NULL, "with --url or --unix: the files are texts, not pictures"},
        {"null", CLI_FLAG, &c->nul, 0, 0, NULL, NULL, "names in that file end with NUL, as find -print0 writes them"},
        CLI_SIZE_OPTIONS(&c->with) CLI_ENGINE_OPTIONS(&c->with) REMOTE_OPTIONS(&c->remote){0},
    };
    const int code = remote_parse(&c->remote, &c->with, options, argc, argv, 0, argc, count);
    if (code != CLI_OK || *count < 0)
        return code;
    if (*count == 0 && c->files_from == NULL)
        return cli_fail_few(c->remote.asks ? NULL : c->remote.model);
    for (int i = 1; i <= *count && c->files_from != NULL; i++)
        if (strcmp(c->files_from, "-") == 0 && strcmp(argv[i], "-") == 0)
            return cli_fail_usage("standard input cannot be an input and --files-from both");
    if (c->nul && c->files_from == NULL)
        return cli_fail_usage("--null is about --files-from, which is not given");
    return CLI_OK;
}

int cli_classify(int argc, char **argv)
{
    struct classifier c = {.code = CLI_OK};
    int count;
    int code = classify_parse(&c, argc, argv, &count);
    if (code != CLI_OK || count < 0)
        return code;
    if (c.remote.asks)
        return classify_run(&c, argv + 1, count);
    struct model *m = cli_load_model(c.remote.model, NULL);
    struct engine_options o = {.pictures_max = 1};
    if (m != NULL && model_config_causal(&m->config)) {
        code = cli_fail("%s is a model for %s, expected one that classifies pictures or texts", m->name,
                        model_task_name(m->config.task));
        model_free(m);
        return code;
    }
    if (m != NULL && c.is_text)
        code = cli_fail_usage("--texts is for a daemon's model, expected it with --url or --unix");
    else if (m != NULL && c.with.size != NULL && m->config.input != INPUT_IMAGE)
        code = cli_fail_usage("--size is about pictures, and %s classifies texts", m->name);
    if (code != CLI_OK) {
        model_free(m);
        return code;
    }
    c.model = m;
    c.is_text = m != NULL && m->config.task == TASK_TEXT_CLASSIFICATION;
    c.engine = cli_open_engine(m, &c.with, &o);
    code = c.engine != NULL ? classify_run(&c, argv + 1, count) : CLI_FAILED;
    engine_close(c.engine);
    model_free(m);
    return code;
}
