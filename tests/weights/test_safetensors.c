/* test_safetensors.c - which files are read, which are refused and with what words, and that no file crashes us. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/random.h"
#include "tests/support/safetensors_write.h"
#include "tests/support/temp_dir.h"
#include "weights/safetensors.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static char dir[PATH_MAX], path[PATH_MAX];

static int setup(void **state)
{
    (void)state;
    temp_dir_create(dir);
    temp_path(path, dir, "x.safetensors");
    return 0;
}

/* Open `path`, expect `want`, and `piece` in the message of a refusal. */
static void expect(const char *name, enum status want, const char *piece)
{
    struct safetensors *s = NULL;
    struct error err = {.message = ""};
    const enum status got = safetensors_open(&s, path, &err);

    if (got != want)
        fail_msg("%s: got %s (%s), expected %s", name, status_name(got), err.message, status_name(want));
    if (want != OK && (s != NULL || strstr(err.message, piece) == NULL || strstr(err.message, path) == NULL))
        fail_msg("%s: message \"%s\", expected \"%s\" in it and the path", name, err.message, piece);
    safetensors_close(s);
}

/* ---- headers ---------------------------------------------------------------------------------------------------- */

#define ENTRY(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
#define ONE(name, dtype, shape, begin, end) "{" ENTRY(name, dtype, shape, begin, end) "}"
#define FIELDS(dtype, shape, offsets) "{\"a\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define NAME_32 "abcdefghijklmnopqrstuvwxyzabcdef"
#define NAME_127 NAME_32 NAME_32 NAME_32 "abcdefghijklmnopqrstuvwxyzabcde"

#define ENTRY_KEYS "tensor \"a\": expected an object of exactly dtype, a string, shape, and data_offsets, a list of 2"

static const struct {
    const char *name, *header;
    size_t data_bytes;
    const char *piece; /* of the message; NULL: the file is good */
} headers[] = {
    {"no tensors", "{}", 0, NULL},
    {"one tensor", ONE("a", "F32", "[2]", 0, 8), 8, NULL},
    {"trailing spaces", ONE("a", "F32", "[2]", 0, 8) "    ", 8, NULL},
    {"metadata", "{\"__metadata__\":{\"format\":\"pt\"}," ENTRY("a", "U8", "[3]", 0, 3) "}", 3, NULL},
    {"rank 0 is one element", ONE("a", "F32", "[]", 0, 4), 4, NULL},
    {"rank 8", ONE("a", "U8", "[1,1,1,1,1,1,1,2]", 0, 2), 2, NULL},
    {"empty tensor", ONE("a", "F32", "[0]", 0, 0), 0, NULL},
    {"empty tensor of huge sides", ONE("a", "F32", "[0,9223372036854775807,9223372036854775807]", 0, 0), 0, NULL},
    {"empty tensor between two",
     "{" ENTRY("a", "U8", "[2]", 0, 2) "," ENTRY("b", "F16", "[0]", 2, 2) "," ENTRY("c", "U8", "[1]", 2, 3) "}", 3,
     NULL},
    {"offsets in any order", "{" ENTRY("a", "U8", "[2]", 2, 4) "," ENTRY("b", "F16", "[1]", 0, 2) "}", 4, NULL},
    {"name of 127 bytes", ONE(NAME_127, "U8", "[1]", 0, 1), 1, NULL},
    {"name of 128 bytes", ONE(NAME_127 "f", "U8", "[1]", 0, 1), 1, "its name has 128 bytes, expected at most 127"},
    {"name with a newline", ONE("a\\n", "U8", "[1]", 0, 1), 1, "control characters"},
    {"name with a NUL", ONE("a\\u0000", "U8", "[1]", 0, 1), 1, "not valid JSON"},
    {"byte order mark", "\xEF\xBB\xBF{}", 0, "not valid JSON"},
    {"list", "[]", 0, "holds a list of 0, expected an object"},
    {"header of no bytes", "", 0, "not valid JSON"},
    {"no closing brace", "{", 0, "not valid JSON"},
    {"text behind the object", "{}x", 0, "not valid JSON"},
    {"not UTF-8", "{\"\xFF\":1}", 0, "not valid JSON"},
    {"the same name twice", "{" ENTRY("a", "U8", "[1]", 0, 1) "," ENTRY("a", "U8", "[1]", 0, 1) "}", 1, "duplicate"},
    {"entry is a number", "{\"a\":1}", 0, ENTRY_KEYS},
    {"metadata is a list", "{\"__metadata__\":[]}", 0, NULL},
    {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, ENTRY_KEYS},
    {"no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, ENTRY_KEYS},
    {"no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, ENTRY_KEYS},
    {"unknown key", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, ENTRY_KEYS},
    {"dtype F64", ONE("a", "F64", "[1]", 0, 8), 8, "dtype is \"F64\", expected \"F32\", \"F16\", \"BF16\""},
    {"dtype in small letters", ONE("a", "f32", "[1]", 0, 4), 4, "dtype is \"f32\""},
    {"dtype is a number", FIELDS("32", "[1]", "[0,4]"), 4, ENTRY_KEYS},
    {"shape is a number", FIELDS("\"U8\"", "1", "[0,1]"), 1, "shape is 1, expected a list of at most 8"},
    {"rank 9", FIELDS("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "shape is a list of 9"},
    {"side below 0", FIELDS("\"U8\"", "[2,-1]", "[0,1]"), 1, "shape[1] is -1, expected an integer of at least 0"},
    {"side with a fraction", FIELDS("\"U8\"", "[1.0]", "[0,1]"), 1, "shape[0] is 1.0"},
    {"side is a string", FIELDS("\"U8\"", "[\"1\"]", "[0,1]"), 1, "shape[0] is a string"},
    {"side beyond 63 bits", FIELDS("\"U8\"", "[9223372036854775808]", "[0,1]"), 1, "not valid JSON"},
    {"shape overflows", FIELDS("\"F32\"", "[4294967296,4294967296]", "[0,8]"), 8, "size in bytes is beyond 64 bits"},
    {"shape overflows to a fit", FIELDS("\"U8\"", "[4294967297,4294967297,4294967297]", "[0,1]"), 1, "beyond 64 bits"},
    {"bytes overflow", FIELDS("\"F32\"", "[4611686018427387904]", "[0,0]"), 0, "size in bytes is beyond 64 bits"},
    {"offsets are one", FIELDS("\"U8\"", "[1]", "[0]"), 1, ENTRY_KEYS},
    {"three offsets", FIELDS("\"U8\"", "[1]", "[0,1,1]"), 1, ENTRY_KEYS},
    {"offsets are an object", FIELDS("\"U8\"", "[1]", "{}"), 1, ENTRY_KEYS},
    {"offset below 0", FIELDS("\"U8\"", "[1]", "[-1,0]"), 1, "data_offsets are -1 and 0, expected 1 bytes"},
    {"offset is a string", FIELDS("\"U8\"", "[1]", "[0,\"1\"]"), 1, ENTRY_KEYS},
    {"begin behind end", FIELDS("\"U8\"", "[1]", "[1,0]"), 1, "data_offsets are 1 and 0, expected 1 bytes"},
    {"end behind the file", FIELDS("\"U8\"", "[2]", "[0,2]"), 1,
     "data_offsets are 0 and 2, expected 2 bytes (2 elements of U8) among the 1 after"},
    {"end far behind the file", FIELDS("\"U8\"", "[1]", "[0,9223372036854775807]"), 1, "among the 1 after the header"},
    {"span too small", FIELDS("\"F32\"", "[2]", "[0,4]"), 4, "are 0 and 4, expected 8 bytes (2 elements of F32)"},
    {"span too large", FIELDS("\"BF16\"", "[2]", "[0,8]"), 8, "are 0 and 8, expected 4 bytes (2 elements of BF16)"},
    {"hole before the first", ONE("a", "U8", "[1]", 1, 2), 2, "tensor \"a\" begins at 1, expected 0"},
    {"hole between", "{" ENTRY("a", "U8", "[1]", 0, 1) "," ENTRY("b", "U8", "[1]", 2, 3) "}", 3,
     "tensor \"b\" begins at 2, expected 1"},
    {"overlap", "{" ENTRY("a", "U8", "[2]", 0, 2) "," ENTRY("b", "U8", "[2]", 1, 3) "}", 3, "it overlaps tensor \"a\""},
    {"the same bytes twice", "{" ENTRY("a", "U8", "[2]", 0, 2) "," ENTRY("b", "U8", "[2]", 0, 2) "}", 2, "overlaps"},
    {"empty tensor inside another", "{" ENTRY("a", "U8", "[2]", 0, 2) "," ENTRY("b", "U8", "[0]", 1, 1) "}", 2,
     "overlaps"},
    {"bytes behind the last", ONE("a", "U8", "[1]", 0, 1), 2, "the tensors end at 1 of the 2 bytes"},
    {"bytes without tensors", "{}", 1, "the tensors end at 0 of the 1 bytes"},
};

static void headers_are_checked_before_any_byte_is_used(void **state)
{
    static const uint8_t data[64];

    (void)state;
    for (size_t i = 0; i < LENGTH(headers); i++) {
        const size_t n = strlen(headers[i].header);
        assert_true(headers[i].data_bytes <= sizeof data);
        safetensors_write_raw(path, n, headers[i].header, n, data, headers[i].data_bytes);
        expect(headers[i].name, headers[i].piece == NULL ? OK : ERR_FORMAT, headers[i].piece);
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void header_lengths_are_bounded_by_file_and_limit(void **state)
{
    static const struct {
        uint64_t length;
        const char *piece;
    } rows[] = {
        {3, "expected at most the 2 bytes after it"},
        {SAFETENSORS_HEADER_MAX, "expected at most the 2 bytes after it"},
        {SAFETENSORS_HEADER_MAX + 1, "expected at most 4194304"},
        {UINT64_MAX, "expected at most 4194304"},
        {UINT64_MAX - 7, "expected at most 4194304"}, /* plus the 8 in front it is 0 */
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        safetensors_write_raw(path, rows[i].length, "{}", 2, NULL, 0);
        expect("header length", ERR_FORMAT, rows[i].piece);
    }
}

static void what_is_no_regular_file_is_refused_at_once(void **state)
{
    (void)state;
    expect("missing", ERR_IO, "No such file");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect("FIFO that nobody writes to", ERR_FORMAT, "is a FIFO, expected a regular file");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    expect("folder", ERR_FORMAT, "is a folder, expected a regular file");
    assert_int_equal(rmdir(path), 0);
}

static void files_beyond_the_bound_are_refused_unread(void **state)
{
    (void)state;
    temp_write(path, "", 0);
    if (truncate(path, (off_t)SAFETENSORS_FILE_MAX + 1) != 0) {
        print_message("skipped: the file system holds no file of %" PRIu64 " bytes\n", (uint64_t)SAFETENSORS_FILE_MAX);
        skip();
    }
    expect("sparse file", ERR_FORMAT, "expected at most 8589934592");
    assert_int_equal(unlink(path), 0);
}

static const float three[] = {1.0f, -2.0f, 3.5f};

/* {a: F32 [3], b: U8 [1], c: BF16 [2]}: c is misaligned in the file and in memory. */
static void write_small(void)
{
    static const uint8_t byte[] = {7}, brains[] = {0x80, 0x3F, 0x00, 0xC0};
    const struct tensor tensors[] = {
        {.name = "a",
         .dtype = DTYPE_F32,
         .rank = 1,
         .shape = {3},
         .data = (const uint8_t *)three,
         .bytes = sizeof three},
        {.name = "b", .dtype = DTYPE_U8, .rank = 1, .shape = {1}, .data = byte, .bytes = sizeof byte},
        {.name = "c", .dtype = DTYPE_BF16, .rank = 2, .shape = {1, 2}, .data = brains, .bytes = sizeof brains},
    };

    safetensors_write(path, tensors, LENGTH(tensors));
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    size_t size;

    (void)state;
    write_small();
    char *bytes = temp_read(path, &size);
    for (size_t n = 0; n < size; n++) {
        temp_write(path, bytes, n);
        expect("cut", ERR_FORMAT, "");
    }
    temp_write(path, bytes, size);
    expect("whole", OK, NULL);
    free(bytes);
}

/* Widen whatever may be widened, so that a sanitizer sees every byte that a view covers. */
static void touch_everything(const struct safetensors *s)
{
    for (size_t i = 0; i < safetensors_count(s); i++) {
        const struct tensor *t = safetensors_at(s, i);
        float *out = malloc(t->elements * sizeof *out + 1);
        assert_non_null(out);
        assert_ptr_equal(safetensors_find(s, t->name), t);
        (void)tensor_to_f32(t, 0, t->elements, out, NULL);
        free(out);
    }
}

static void mutated_files_are_refused_or_consistent(void **state)
{
    size_t size, good = 0;
    struct random random = {.state = 1};

    (void)state;
    write_small();
    char *bytes = temp_read(path, &size);
    char *copy = malloc(size);
    assert_non_null(copy);
    for (int round = 0; round < 4000; round++) {
        memcpy(copy, bytes, size);
        for (int changes = 0; changes <= round % 4; changes++) {
            const uint32_t at = random_below(&random, (uint32_t)size);
            copy[at] = (char)random_below(&random, 256);
        }
        temp_write(path, copy, size);
        struct safetensors *s = NULL;
        struct error err = {.message = ""};
        const enum status st = safetensors_open(&s, path, &err);
        assert_true(st == OK || (st == ERR_FORMAT && err.message[0] != '\0'));
        if (st == OK) {
            good++;
            touch_everything(s);
        }
        safetensors_close(s);
    }
    assert_true(good > 0 && good < 4000);
    free(copy);
    free(bytes);
}

/* ---- views ------------------------------------------------------------------------------------------------------ */

static void what_was_read_outlives_the_file(void **state)
{
    struct safetensors *s = NULL;
    float out[3];

    (void)state;
    write_small();
    assert_int_equal(safetensors_open(&s, path, NULL), OK);
    assert_null(safetensors_at(s, 0)->data);
    assert_int_equal(tensor_to_f32(safetensors_find(s, "a"), 1, 2, out, NULL), OK);
    assert_memory_equal(out, three + 1, 2 * sizeof *three);
    assert_int_equal(safetensors_read(s, NULL), OK);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(safetensors_check_unchanged(s, NULL), ERR_IO);

    assert_int_equal(safetensors_count(s), 3);
    assert_null(safetensors_find(s, "d"));
    assert_string_equal(safetensors_at(s, 2)->name, "c");
    const struct tensor *c = safetensors_find(s, "c");
    assert_ptr_equal(c, safetensors_at(s, 2));
    assert_int_equal(c->rank, 2);
    assert_int_equal(c->shape[1], 2);
    assert_int_equal(c->elements, 2);
    assert_int_equal(tensor_to_f32(c, 0, 2, out, NULL), OK);
    assert_true(out[0] == 1.0f && out[1] == -2.0f);
    assert_int_equal(tensor_to_f32(safetensors_find(s, "a"), 0, 3, out, NULL), OK);
    assert_memory_equal(out, three, sizeof three);
    safetensors_close(s);
    safetensors_close(NULL);
}

static const struct {
    const char *name;
    enum dtype dtype;
    uint8_t bytes[4]; /* little-endian */
    float want;
} numbers[] = {
    {"F32 1.5", DTYPE_F32, {0x00, 0x00, 0xC0, 0x3F}, 1.5f},
    {"F32 smallest subnormal", DTYPE_F32, {0x01, 0x00, 0x00, 0x00}, 0x1p-149f},
    {"F32 largest", DTYPE_F32, {0xFF, 0xFF, 0x7F, 0x7F}, FLT_MAX},
    {"F16 1", DTYPE_F16, {0x00, 0x3C}, 1.0f},
    {"F16 -2.5", DTYPE_F16, {0x00, 0xC1}, -2.5f},
    {"F16 largest", DTYPE_F16, {0xFF, 0x7B}, 65504.0f},
    {"F16 smallest normal", DTYPE_F16, {0x00, 0x04}, 0x1p-14f},
    {"F16 largest subnormal", DTYPE_F16, {0xFF, 0x03}, 1023 * 0x1p-24f},
    {"F16 smallest subnormal", DTYPE_F16, {0x01, 0x00}, 0x1p-24f},
    {"F16 negative subnormal", DTYPE_F16, {0x01, 0x80}, -0x1p-24f},
    {"F16 one third", DTYPE_F16, {0x55, 0x35}, 0.333251953125f},
    {"F16 minus zero", DTYPE_F16, {0x00, 0x80}, -0.0f},
    {"BF16 -3.140625", DTYPE_BF16, {0x49, 0xC0}, -3.140625f},
    {"BF16 subnormal", DTYPE_BF16, {0x01, 0x00}, 0x1p-133f},
    {"BF16 largest", DTYPE_BF16, {0x7F, 0x7F}, 0x1.FEp127f},
};

static void widening_is_exact(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(numbers); i++) {
        float out = NAN;
        struct tensor t = {.name = "x", .dtype = numbers[i].dtype, .rank = 1, .shape = {1}, .elements = 1};
        t.data = numbers[i].bytes;
        t.bytes = dtype_bytes(t.dtype);
        assert_int_equal(tensor_to_f32(&t, 0, 1, &out, NULL), OK);
        if (out != numbers[i].want || signbit(out) != signbit(numbers[i].want))
            fail_msg("%s: got %a, expected %a", numbers[i].name, (double)out, (double)numbers[i].want);
    }
}

/* All 65,536 halves against the definition of the format. */
static void every_half_is_widened_as_ieee_says(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        const uint8_t bytes[] = {(uint8_t)(h & 0xFF), (uint8_t)(h >> 8)};
        const struct tensor t = {
            .name = "x", .dtype = DTYPE_F16, .rank = 1, .shape = {1}, .elements = 1, .data = bytes, .bytes = 2};
        const int exponent = (int)(h >> 10 & 31), fraction = (int)(h & 1023);
        float out = 0.0f;
        const enum status st = tensor_to_f32(&t, 0, 1, &out, NULL);
        if (exponent == 31) {
            assert_int_equal(st, ERR_FORMAT);
            continue;
        }
        const double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
        assert_int_equal(st, OK);
        assert_true((double)fabsf(out) == size && (signbit(out) != 0) == (h >= 0x8000));
    }
}

static void numbers_that_are_not_finite_are_refused_by_place(void **state)
{
    static const struct {
        enum dtype dtype;
        uint8_t bytes[8];
        uint64_t elements;
        const char *piece;
    } rows[] = {
        {DTYPE_F32, {0, 0, 0x80, 0x3F, 0, 0, 0xC0, 0x7F}, 2, "tensor \"w\" holds a NaN at element 1"},
        {DTYPE_F32, {0, 0, 0x80, 0xFF, 0, 0, 0, 0}, 2, "tensor \"w\" holds an infinity at element 0"},
        {DTYPE_F16, {0, 0, 0, 0, 0x00, 0x7C}, 3, "tensor \"w\" holds an infinity at element 2"},
        {DTYPE_F16, {0x01, 0xFC}, 1, "tensor \"w\" holds a NaN at element 0"},
        {DTYPE_BF16, {0x80, 0x7F}, 1, "tensor \"w\" holds an infinity at element 0"},
        {DTYPE_BF16, {0xC0, 0xFF}, 1, "tensor \"w\" holds a NaN at element 0"},
        {DTYPE_U8, {1}, 1, "tensor \"w\" has dtype U8, expected F32, F16 or BF16"},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH(rows); i++) {
        float out[3];
        struct error err = {.message = ""};
        const struct tensor t = {
            .name = "w", .dtype = rows[i].dtype, .elements = rows[i].elements, .data = rows[i].bytes};
        assert_int_equal(tensor_to_f32(&t, 0, t.elements, out, &err), ERR_FORMAT);
        assert_non_null(strstr(err.message, rows[i].piece));
        assert_string_equal(err.param, "w");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(headers_are_checked_before_any_byte_is_used, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(header_lengths_are_bounded_by_file_and_limit, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(what_is_no_regular_file_is_refused_at_once, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(files_beyond_the_bound_are_refused_unread, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(a_file_cut_anywhere_is_refused, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(mutated_files_are_refused_or_consistent, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(what_was_read_outlives_the_file, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(widening_is_exact, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(every_half_is_widened_as_ieee_says, setup, temp_dirs_end),
        cmocka_unit_test_setup_teardown(numbers_that_are_not_finite_are_refused_by_place, setup, temp_dirs_end),
    };

    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
