/* test_model_config.c - every key of config.json: its default, its range, its contradictions, and the words of a
 * refusal. A row changes one of four good configs by a JSON merge patch (null removes a key). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/random.h"
#include "tests/support/temp_dir.h"
#include "weights/model_config.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static char dir[PATH_MAX], path[PATH_MAX];

enum base { IMAGE, TEXT, CLASSIFIER, PIXELS };

static const char *const bases[] = {
    [IMAGE] = "{\"format\":\"aftd-model\",\"version\":1,\"task\":\"image-classification\",\"dim\":32,\"depth\":2,"
              "\"mixer\":{\"type\":\"aft-conv\",\"heads\":8,\"kernel\":[5,3]},\"labels\":[\"cat\",\"dog\",\"dog\"],"
              "\"input\":{\"kind\":\"image\",\"size\":[24,40],\"patch\":[4,8],\"mean\":[0.5,0.25,0],"
              "\"std\":[0.25,0.5,1]}}",
    [TEXT] = "{\"format\":\"aftd-model\",\"version\":1,\"task\":\"text-generation\",\"dim\":32,\"depth\":2,"
             "\"mixer\":{\"type\":\"aft-local\",\"window\":8},\"input\":{\"kind\":\"bytes\",\"context\":48}}",
    [CLASSIFIER] = "{\"format\":\"aftd-model\",\"version\":1,\"task\":\"text-classification\",\"dim\":32,\"depth\":2,"
                   "\"mixer\":{\"type\":\"fastformer\",\"heads\":4},\"labels\":[\"a\",\"b\"],"
                   "\"input\":{\"kind\":\"bytes\",\"context\":48}}",
    [PIXELS] = "{\"format\":\"aftd-model\",\"version\":1,\"task\":\"image-generation\",\"dim\":32,\"depth\":2,"
               "\"mixer\":{\"type\":\"aft-local\",\"window\":8},"
               "\"input\":{\"kind\":\"pixels\",\"size\":[4,4],\"context\":48}}",
};

/* ---- helpers ---------------------------------------------------------------------------------------------------- */

static int setup(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "config.json");
    return 0;
}

/* RFC 7396, two levels deep as config.json is. */
static void merge(json_t *target, json_t *patch)
{
    const char *key;
    json_t *value, *inner;

    json_object_foreach(patch, key, value)
    {
        json_t *old = json_object_get(target, key);
        if (json_is_object(value) && json_is_object(old)) {
            const char *inner_key;
            json_object_foreach(value, inner_key, inner)
            {
                if (json_is_null(inner))
                    (void)json_object_del(old, inner_key);
                else
                    assert_int_equal(json_object_set(old, inner_key, inner), 0);
            }
        } else if (json_is_null(value)) {
            (void)json_object_del(target, key);
        } else {
            assert_int_equal(json_object_set(target, key, value), 0);
        }
    }
}

static void write_config(enum base base, const char *patch)
{
    json_t *root = json_loads(bases[base], 0, NULL), *change = json_loads(patch, 0, NULL);

    assert_non_null(root);
    if (change == NULL)
        fail_msg("the patch %s is no JSON", patch);
    merge(root, change);
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    temp_write(path, text, strlen(text));
    free(text);
    json_decref(change);
    json_decref(root);
}

struct warnings {
    size_t count;
    char last[ERROR_MESSAGE_MAX];
};

static void count_warning(void *arg, const char *message)
{
    struct warnings *w = arg;

    w->count++;
    (void)snprintf(w->last, sizeof w->last, "%s", message);
}

static struct model_config read_good(enum base base, const char *patch, struct warnings *w)
{
    struct model_config c;
    struct error err = {.message = ""};

    write_config(base, patch);
    if (model_config_read(&c, path, w == NULL ? NULL : count_warning, w, &err) != OK)
        fail_msg("%s: %s", patch, err.message);
    return c;
}

/* ---- what is read ----------------------------------------------------------------------------------------------- */

static void an_image_config_is_read_with_its_defaults(void **state)
{
    struct warnings w = {.count = 0};

    (void)state;
    struct model_config c = read_good(IMAGE, "{}", &w);
    assert_int_equal(w.count, 0);
    assert_int_equal(c.task, TASK_IMAGE_CLASSIFICATION);
    assert_int_equal(c.dim, 32);
    assert_int_equal(c.depth, 2);
    assert_int_equal(c.hidden, 128);
    assert_int_equal(c.activation, ACTIVATION_GELU);
    assert_true(c.norm_eps == 1e-5f);
    assert_false(c.share_layers);
    assert_int_equal(c.mixer.type, MIXER_AFT_CONV);
    assert_int_equal(c.mixer.heads, 8);
    assert_int_equal(c.mixer.kernel[0], 5);
    assert_int_equal(c.mixer.kernel[1], 3);
    assert_true(c.mixer.query_gate && c.mixer.global && !c.mixer.share_value_query);
    assert_int_equal(c.pooling, POOLING_MEAN);
    assert_int_equal(c.classes, 3);
    assert_string_equal(c.labels[2], "dog");
    assert_int_equal(c.input, INPUT_IMAGE);
    assert_int_equal(c.size[0], 24);
    assert_int_equal(c.size[1], 40);
    assert_int_equal(c.patch[0], 4);
    assert_int_equal(c.patch[1], 8);
    assert_true(c.mean[0] == 0.5f && c.mean[1] == 0.25f && c.mean[2] == 0.0f && c.std[2] == 1.0f);
    assert_int_equal(c.resize_to, 24);
    assert_int_equal(c.interpolation, INTERPOLATION_BICUBIC);
    model_config_clear(&c);
    model_config_clear(&c);
    model_config_clear(NULL);
}

static void every_optional_key_is_read(void **state)
{
    (void)state;
    struct model_config c = read_good(IMAGE,
                                      "{\"mlp_ratio\":3,\"activation\":\"gelu_tanh\",\"norm_eps\":1,"
                                      "\"share_layers\":true,\"mixer\":{\"kernel\":7,\"query_gate\":false,"
                                      "\"global\":false},\"input\":{\"resize_to\":36,\"interpolation\":\"bilinear\"}}",
                                      NULL);
    assert_int_equal(c.hidden, 96);
    assert_int_equal(c.activation, ACTIVATION_GELU_TANH);
    assert_true(c.norm_eps == 1.0f);
    assert_true(c.share_layers);
    assert_int_equal(c.mixer.kernel[0], 7);
    assert_int_equal(c.mixer.kernel[1], 7);
    assert_false(c.mixer.query_gate || c.mixer.global);
    assert_int_equal(c.resize_to, 36);
    assert_int_equal(c.interpolation, INTERPOLATION_BILINEAR);
    model_config_clear(&c);
}

/* Tap j of K is at j - floor(K / 2): an even kernel merely looks further back than ahead. */
static void a_pictures_kernel_may_have_any_number_of_taps(void **state)
{
    static const struct {
        const char *patch;
        uint32_t height, width;
    } rows[] = {
        {"{\"mixer\":{\"kernel\":1}}", 1, 1},
        {"{\"mixer\":{\"kernel\":6}}", 6, 6},
        {"{\"mixer\":{\"kernel\":[4,3]}}", 4, 3},
        {"{\"mixer\":{\"kernel\":[3,2]}}", 3, 2},
        {"{\"mixer\":{\"kernel\":[254,255]}}", 254, 255},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct model_config c = read_good(IMAGE, rows[i].patch, NULL);
        assert_int_equal(c.mixer.kernel[0], rows[i].height);
        assert_int_equal(c.mixer.kernel[1], rows[i].width);
        model_config_clear(&c);
    }
}

static void sequences_are_read(void **state)
{
    (void)state;
    struct model_config c = read_good(TEXT, "{}", NULL);
    assert_int_equal(c.task, TASK_TEXT_GENERATION);
    assert_int_equal(c.mixer.window, 8);
    assert_int_equal(c.context, 48);
    assert_int_equal(c.classes, 0);
    model_config_clear(&c);

    c = read_good(TEXT, "{\"mixer\":{\"type\":\"aft-conv\",\"window\":null,\"heads\":32,\"kernel\":16}}", NULL);
    assert_int_equal(c.mixer.kernel[0], 1);
    assert_int_equal(c.mixer.kernel[1], 16);
    model_config_clear(&c);

    c = read_good(TEXT, "{\"mixer\":{\"type\":\"aft-conv\",\"window\":null,\"heads\":32,\"kernel\":3072}}", NULL);
    assert_int_equal(c.mixer.kernel[1], 3072);
    model_config_clear(&c);

    c = read_good(TEXT, "{\"mixer\":{\"window\":0}}", NULL);
    assert_int_equal(c.mixer.type, MIXER_AFT_SIMPLE);
    model_config_clear(&c);

    c = read_good(CLASSIFIER, "{\"pooling\":\"class-token\",\"mixer\":{\"share_value_query\":true}}", NULL);
    assert_int_equal(c.pooling, POOLING_CLASS_TOKEN);
    assert_true(c.mixer.share_value_query);
    model_config_clear(&c);

    c = read_good(CLASSIFIER, "{\"pooling\":\"attention\",\"mixer\":{\"type\":\"sima\",\"norm\":\"l2\"}}", NULL);
    assert_int_equal(c.pooling, POOLING_ATTENTION);
    assert_int_equal(c.mixer.norm, NORM_L2);
    assert_true(c.mixer.scale);
    model_config_clear(&c);

    c = read_good(PIXELS, "{}", NULL);
    assert_int_equal(c.input, INPUT_PIXELS);
    assert_int_equal(c.size[1], 4);
    model_config_clear(&c);
}

static void texts_whose_states_are_small_are_fed_ahead_of_their_end(void **state)
{
    static const struct {
        enum model_task task;
        enum mixer_type mixer;
        bool pos_embed, want;
    } rows[] = {
        {TASK_TEXT_GENERATION, MIXER_AFT_LOCAL, false, true},   {TASK_TEXT_GENERATION, MIXER_AFT_SIMPLE, true, true},
        {TASK_TEXT_GENERATION, MIXER_AFT_SIMPLE, false, false}, /* which has no end */
        {TASK_TEXT_GENERATION, MIXER_AFT_FULL, true, false},    {TASK_TEXT_GENERATION, MIXER_ATTENTION, true, false},
        {TASK_IMAGE_GENERATION, MIXER_AFT_LOCAL, true, false},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const struct model_config c = {.task = rows[i].task, .mixer.type = rows[i].mixer};
        assert_int_equal(model_config_feeds_ahead(&c, rows[i].pos_embed), rows[i].want);
    }
}

static void keys_that_nobody_reads_are_warned_of(void **state)
{
    static const struct {
        enum base base;
        const char *patch, *piece; /* NULL: no warning */
    } rows[] = {
        {IMAGE, "{\"colour\":1}", "unknown key \"colour\" is ignored"},
        {IMAGE, "{\"mixer\":{\"foo\":{}}}", "unknown key \"mixer.foo\" is ignored"},
        {IMAGE, "{\"input\":{\"bar\":[]}}", "unknown key \"input.bar\" is ignored"},
        {IMAGE, "{\"a\\nb\":1}", "unknown key \"a?b\" is ignored"},
        {IMAGE, "{\"mixer\":{\"window\":\"any\"}}", "key \"mixer.window\" has no meaning for this model"},
        {IMAGE, "{\"input\":{\"context\":5}}", "key \"input.context\" has no meaning for this model"},
        {TEXT, "{\"pooling\":\"mean\"}", "key \"pooling\" has no meaning for this model"},
        {TEXT, "{\"mixer\":{\"factorised\":false}}", NULL},
        {IMAGE, "{\"mixer\":{\"reparameterised\":5}}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct warnings w = {.count = 0};
        struct model_config c = read_good(rows[i].base, rows[i].patch, &w);
        if (w.count != (rows[i].piece != NULL) || (w.count == 1 && strstr(w.last, rows[i].piece) == NULL))
            fail_msg("%s: %zu warnings, the last \"%s\"", rows[i].patch, w.count, w.last);
        model_config_clear(&c);
    }
}

/* ---- what is refused -------------------------------------------------------------------------------------------- */

static void expect_refusal(const char *name, const char *param, const char *piece)
{
    struct model_config c = {.dim = 77};
    struct error err = {.message = ""};
    const enum status st = model_config_read(&c, path, NULL, NULL, &err);

    if (st != ERR_FORMAT)
        fail_msg("%s: got %s (%s), expected ERR_FORMAT", name, status_name(st), st == OK ? "" : err.message);
    if (strstr(err.message, piece) == NULL || strstr(err.message, path) == NULL || strcmp(err.param, param) != 0)
        fail_msg("%s: \"%s\" about \"%s\", expected \"%s\" about \"%s\"", name, err.message, err.param, piece, param);
    assert_int_equal(c.dim, 77);
}

static const struct {
    enum base base;
    const char *patch, *param, *piece;
} refusals[] = {
    {IMAGE, "{\"format\":\"other\"}", "format",
     "format is a string (\"other\") and version is 1, expected format \"aftd-model\" and version 1"},
    {IMAGE, "{\"version\":2}", "format", "version is 2"},
    {IMAGE, "{\"version\":1.0}", "format", "version is 1.0"},
    {IMAGE, "{\"format\":null,\"version\":null}", "format", "format is missing and version is missing"},
    {IMAGE, "{\"task\":null}", "task", "task is missing, expected \"image-classification\", \"text-generation\""},
    {IMAGE, "{\"task\":\"segmentation\"}", "task", "task is a string (\"segmentation\"), expected"},
    {IMAGE, "{\"dim\":null}", "dim", "dim is missing, expected an integer 1..8192"},
    {IMAGE, "{\"dim\":\"32\"}", "dim", "dim is a string (\"32\"), expected an integer 1..8192"},
    {IMAGE, "{\"dim\":32.0}", "dim", "dim is 32.0, expected an integer"},
    {IMAGE, "{\"dim\":0}", "dim", "dim is 0, expected an integer 1..8192"},
    {IMAGE, "{\"dim\":-4}", "dim", "dim is -4"},
    {IMAGE, "{\"dim\":8193}", "dim", "dim is 8193"},
    {IMAGE, "{\"dim\":4294967328}", "dim", "dim is 4294967328"},
    {IMAGE, "{\"depth\":257}", "depth", "expected an integer 1..256"},
    {IMAGE, "{\"mlp_ratio\":0}", "mlp_ratio", "mlp_ratio is 0"},
    {IMAGE, "{\"mlp_ratio\":2049}", "mlp_ratio",
     "mlp_ratio 2049 times dim 32 is too large, expected at most 65536 hidden units"},
    {IMAGE, "{\"activation\":\"swish\"}", "activation", "expected \"gelu\", \"gelu_tanh\" or \"relu\""},
    {IMAGE, "{\"norm_eps\":0}", "norm_eps", "norm_eps is 0, expected a number 1e-30..1"},
    {IMAGE, "{\"norm_eps\":-1e-5}", "norm_eps", "norm_eps is -1e-5"},
    {IMAGE, "{\"norm_eps\":1e300}", "norm_eps", "norm_eps is 1e300"},
    {IMAGE, "{\"share_layers\":1}", "share_layers", "share_layers is 1, expected true or false"},
    {IMAGE, "{\"mixer\":null}", "mixer", "mixer is missing, expected an object"},
    {IMAGE, "{\"mixer\":\"aft-conv\"}", "mixer", "mixer is a string (\"aft-conv\"), expected an object"},
    {IMAGE, "{\"mixer\":{\"type\":null}}", "mixer.type", "mixer.type is missing, expected \"aft-full\""},
    {IMAGE, "{\"mixer\":{\"type\":\"mamba\"}}", "mixer.type", "mixer.type is a string (\"mamba\")"},
    {IMAGE, "{\"mixer\":{\"heads\":null}}", "mixer.heads", "mixer.heads is missing, expected an integer 1..8192"},
    {IMAGE, "{\"mixer\":{\"heads\":\"eight\"}}", "mixer.heads", "mixer.heads is a string (\"eight\")"},
    {IMAGE, "{\"mixer\":{\"heads\":5}}", "mixer.heads", "mixer.heads is 5, expected a divisor of dim 32"},
    {IMAGE, "{\"mixer\":{\"heads\":64}}", "mixer.heads", "mixer.heads is 64, expected a divisor of dim 32"},
    {IMAGE, "{\"mixer\":{\"kernel\":null}}", "mixer.kernel",
     "mixer.kernel is missing, expected an integer or a list of 2 integers 1..255"},
    {IMAGE, "{\"mixer\":{\"kernel\":[3]}}", "mixer.kernel", "mixer.kernel is a list of 1"},
    {IMAGE, "{\"mixer\":{\"kernel\":[3,5,7]}}", "mixer.kernel", "mixer.kernel is a list of 3"},
    {IMAGE, "{\"mixer\":{\"kernel\":[3,\"5\"]}}", "mixer.kernel", "mixer.kernel[1] is a string (\"5\")"},
    {IMAGE, "{\"mixer\":{\"kernel\":0}}", "mixer.kernel", "mixer.kernel is 0"},
    {IMAGE, "{\"mixer\":{\"kernel\":[3,257]}}", "mixer.kernel", "mixer.kernel[1] is 257"},
    {IMAGE, "{\"mixer\":{\"query_gate\":\"no\"}}", "mixer.query_gate", "expected true or false"},
    {IMAGE, "{\"mixer\":{\"global\":0}}", "mixer.global", "expected true or false"},
    {TEXT, "{\"mixer\":{\"window\":null}}", "mixer.window", "mixer.window is missing, expected an integer 0..65536"},
    {TEXT, "{\"mixer\":{\"window\":-1}}", "mixer.window", "mixer.window is -1"},
    {TEXT, "{\"mixer\":{\"window\":0,\"global\":false}}", "mixer.window",
     "mixer.window is 0, expected at least 1 where mixer.global is false"},
    {TEXT, "{\"mixer\":{\"type\":\"aft-conv\",\"heads\":4,\"kernel\":[1,5]}}", "mixer.kernel",
     "mixer.kernel is a list of 2, expected an integer 1..65536"},
    {TEXT, "{\"mixer\":{\"type\":\"aft-conv\",\"heads\":4,\"kernel\":65537}}", "mixer.kernel",
     "mixer.kernel is 65537, expected an integer 1..65536"},
    {TEXT, "{\"mixer\":{\"type\":\"attention\",\"heads\":3}}", "mixer.heads", "mixer.heads is 3, expected a divisor"},
    {TEXT, "{\"mixer\":{\"type\":\"sima\",\"heads\":4}}", "mixer.type",
     "mixer.type is \"sima\", which has no causal form: it cannot serve the task text-generation"},
    {TEXT, "{\"mixer\":{\"type\":\"simple-attention\",\"heads\":4}}", "mixer.type", "has no causal form"},
    {PIXELS, "{\"mixer\":{\"type\":\"fastformer\",\"heads\":4}}", "mixer.type",
     "it cannot serve the task image-generation"},
    {CLASSIFIER, "{\"mixer\":{\"share_value_query\":1}}", "mixer.share_value_query", "expected true or false"},
    {IMAGE, "{\"pooling\":\"max\"}", "pooling",
     "pooling is a string (\"max\"), expected \"mean\", \"class-token\" or "
     "\"attention\""},
    {TEXT, "{\"mixer\":{\"type\":\"sima\",\"heads\":4,\"norm\":\"l3\"}}", "mixer.norm",
     "mixer.norm is a string (\"l3\"), expected \"l1\", \"l2\" or \"none\""},
    {TEXT, "{\"mixer\":{\"type\":\"simple-attention\",\"heads\":4,\"scale\":1}}", "mixer.scale",
     "mixer.scale is 1, expected true or false"},
    {IMAGE, "{\"pooling\":\"class-token\"}", "pooling", "pooling is \"class-token\", expected \"mean\""},
    {IMAGE, "{\"labels\":null}", "labels",
     "labels is missing, expected a list of 1..65536 strings of at most 256 bytes"},
    {IMAGE, "{\"labels\":[]}", "labels", "labels is a list of 0"},
    {IMAGE, "{\"labels\":{}}", "labels", "labels is an object"},
    {IMAGE, "{\"labels\":[\"a\",2]}", "labels", "labels[1] is 2"},
    {TEXT, "{\"labels\":[\"a\"]}", "labels", "labels are for classifiers, but the task is text-generation"},
    {IMAGE, "{\"input\":null}", "input", "input is missing, expected an object"},
    {IMAGE, "{\"input\":{\"kind\":null}}", "input.kind",
     "input.kind is missing, expected \"image\", \"bytes\" or \"pixels\""},
    {IMAGE, "{\"input\":{\"kind\":\"bytes\",\"context\":9}}", "input.kind",
     "input.kind is \"bytes\", expected \"image\" for the task image-classification"},
    {TEXT, "{\"task\":\"image-generation\"}", "input.kind", "input.kind is \"bytes\", expected \"pixels\""},
    {PIXELS, "{\"task\":\"text-generation\"}", "input.kind", "input.kind is \"pixels\", expected \"bytes\""},
    {IMAGE, "{\"input\":{\"size\":null}}", "input.size",
     "input.size is missing, expected a list of 2 integers 1..4096"},
    {IMAGE, "{\"input\":{\"size\":32}}", "input.size", "input.size is 32, expected a list of 2 integers"},
    {IMAGE, "{\"input\":{\"size\":[0,40]}}", "input.size", "input.size[0] is 0"},
    {IMAGE, "{\"input\":{\"size\":[24,4097]}}", "input.size", "input.size[1] is 4097"},
    {IMAGE, "{\"input\":{\"patch\":null}}", "input.patch", "input.patch is missing"},
    {IMAGE, "{\"input\":{\"patch\":[5,8]}}", "input.patch",
     "input.patch has height 5, expected a divisor of input.size's 24"},
    {IMAGE, "{\"input\":{\"patch\":[4,80]}}", "input.patch",
     "input.patch has width 80, expected a divisor of input.size's 40"},
    {IMAGE, "{\"input\":{\"size\":[4096,4096],\"patch\":[1,1]}}", "input.patch",
     "too many patches, expected at most 65536"},
    {IMAGE, "{\"input\":{\"mean\":null}}", "input.mean", "input.mean is missing, expected a list of 3 numbers"},
    {IMAGE, "{\"input\":{\"mean\":[0,0]}}", "input.mean", "input.mean is a list of 2"},
    {IMAGE, "{\"input\":{\"mean\":[0,\"x\",0]}}", "input.mean", "input.mean[1] is a string (\"x\")"},
    {IMAGE, "{\"input\":{\"std\":[1,0,1]}}", "input.std",
     "input.std[1] is 0, expected a list of 3 numbers 1e-06..1000"},
    {IMAGE, "{\"input\":{\"std\":[1,1,-0.5]}}", "input.std", "input.std[2] is -0.5"},
    {IMAGE, "{\"input\":{\"resize_to\":0}}", "input.resize_to", "input.resize_to is 0"},
    {IMAGE, "{\"input\":{\"interpolation\":\"nearest\"}}", "input.interpolation",
     "expected \"bicubic\" or \"bilinear\""},
    {TEXT, "{\"input\":{\"context\":null}}", "input.context", "input.context is missing, expected an integer 1..65536"},
    {TEXT, "{\"input\":{\"context\":65537}}", "input.context", "input.context is 65537"},
    {PIXELS, "{\"input\":{\"size\":null}}", "input.size", "input.size is missing"},
};

static void a_refusal_names_key_value_and_what_was_expected(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(refusals); i++) {
        write_config(refusals[i].base, refusals[i].patch);
        expect_refusal(refusals[i].patch, refusals[i].param, refusals[i].piece);
    }
}

static void long_labels_are_refused(void **state)
{
    char patch[400];
    char label[MODEL_LABEL_MAX + 2];

    (void)state;
    memset(label, 'x', sizeof label);
    label[MODEL_LABEL_MAX] = '\0';
    (void)snprintf(patch, sizeof patch, "{\"labels\":[\"%s\"]}", label);
    struct model_config c = read_good(IMAGE, patch, NULL);
    assert_int_equal(strlen(c.labels[0]), MODEL_LABEL_MAX);
    model_config_clear(&c);
    (void)snprintf(patch, sizeof patch, "{\"labels\":[\"%sy\"]}", label);
    write_config(IMAGE, patch);
    expect_refusal("257 bytes", "labels", "labels[0] is a string (\"xxx");
}

static void texts_that_are_no_json_object_are_refused_by_line(void **state)
{
    static const struct {
        const char *text, *piece;
    } rows[] = {
        {"", "not valid JSON at line 1"},
        {"{\n\"dim\": }", "not valid JSON at line 2"},
        {"[1]", "holds a list of 1, expected an object"},
        {"{\"dim\":1,\"dim\":1}", "duplicate"},
        {"{\"norm_eps\":NaN}", "not valid JSON"},
        {"{\"norm_eps\":1e400}", "not valid JSON"},
        {"{\"dim\":null}", "format is missing"},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        temp_write(path, rows[i].text, strlen(rows[i].text));
        expect_refusal(rows[i].text, i + 1 < LENGTH(rows) ? "" : "format", rows[i].piece);
    }
}

static void mutated_configs_are_refused_or_in_range(void **state)
{
    struct random random = {.state = 1};
    size_t good = 0;

    (void)state;
    for (int round = 0; round < 3000; round++) {
        char text[1024];
        struct model_config c;
        struct error err = {.message = ""};
        const size_t n = (size_t)snprintf(text, sizeof text, "%s", bases[round % (int)LENGTH(bases)]);
        for (int changes = 0; changes <= round % 3; changes++) {
            const uint32_t at = random_below(&random, (uint32_t)n);
            text[at] = (char)(0x20 + random_below(&random, 0x5F));
        }
        temp_write(path, text, n);
        const enum status st = model_config_read(&c, path, NULL, NULL, &err);
        assert_true(st == OK || (st == ERR_FORMAT && err.message[0] != '\0'));
        if (st != OK)
            continue;
        good++;
        assert_in_range(c.dim, 1, MODEL_DIM_MAX);
        assert_in_range(c.depth, 1, MODEL_DEPTH_MAX);
        assert_true(c.mixer.heads == 0 || c.dim % c.mixer.heads == 0);
        assert_true(c.input != INPUT_IMAGE || (c.size[0] % c.patch[0] == 0 && c.size[1] % c.patch[1] == 0));
        model_config_clear(&c);
    }
    assert_true(good > 0 && good < 3000);
}

/* Every config of the format's examples is one that this parser accepts without a warning. */
static void the_goldens_configs_are_read(void **state)
{
    static const char *const folders[] = {"tests/data/golden/conv-k3x7-oblong",
                                          "tests/data/golden/lm-local-past-context", "weights/models/cifar10-aft-conv",
                                          "tests/data/models/enwik8-aft-local"};

    (void)state;
    for (size_t i = 0; i < LENGTH(folders); i++) {
        struct warnings w = {.count = 0};
        struct model_config c;
        struct error err = {.message = ""};
        char file[PATH_MAX];
        temp_path(file, folders[i], "config.json");
        if (model_config_read(&c, file, count_warning, &w, &err) != OK || w.count != 0)
            fail_msg("%s: %s%s", folders[i], err.message, w.last);
        model_config_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_image_config_is_read_with_its_defaults),
        cmocka_unit_test(every_optional_key_is_read),
        cmocka_unit_test(a_pictures_kernel_may_have_any_number_of_taps),
        cmocka_unit_test(sequences_are_read),
        cmocka_unit_test(texts_whose_states_are_small_are_fed_ahead_of_their_end),
        cmocka_unit_test(keys_that_nobody_reads_are_warned_of),
        cmocka_unit_test(a_refusal_names_key_value_and_what_was_expected),
        cmocka_unit_test(long_labels_are_refused),
        cmocka_unit_test(texts_that_are_no_json_object_are_refused_by_line),
        cmocka_unit_test(mutated_configs_are_refused_or_in_range),
        cmocka_unit_test(the_goldens_configs_are_read),
    };

    return cmocka_run_group_tests_name("model_config", tests, setup, temp_dirs_end);
}
