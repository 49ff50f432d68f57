/* fuzz_safetensors.c - a file of any bytes is refused with a reason, or every tensor of it can be found and read.
 *
 * An input begins with a byte. If that is even, the rest is the file. If it is odd, the file is made of the rest, so
 * that changes do not all end at the first check: three bytes for the size of the data, the header's JSON up to a NUL,
 * and what the data repeat; the length in front is right. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "weights/safetensors.h"

enum { LENGTH_BYTES = 8, DATA_MAX = 1 << 13 };

static const char *make_file(struct fuzz_input *in)
{
    const size_t data = fuzz_number(in, 3) % (DATA_MAX + 1);
    const size_t header = in->left > 0 ? strnlen((const char *)in->at, in->left) : 0;
    const size_t start = LENGTH_BYTES + header;
    const uint8_t *pattern = in->at + header;
    const size_t period = in->left - header;
    uint8_t *bytes = calloc(1, start + data);

    fuzz_check(bytes != NULL, "there is memory for a file");
    for (unsigned i = 0; i < LENGTH_BYTES; i++)
        bytes[i] = (uint8_t)((uint64_t)header >> (8 * i));
    if (header > 0)
        memcpy(bytes + LENGTH_BYTES, in->at, header);
    for (size_t i = 0; i < data && period > 0; i++)
        bytes[start + i] = pattern[i % period];
    const char *path = fuzz_file(bytes, start + data);
    free(bytes);
    return path;
}

/* Both ways to its bytes are the same. */
static void check_read(struct safetensors *file)
{
    struct error err;
    fuzz_check(safetensors_read(file, &err) == OK, "what was opened can be read");
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *t = safetensors_at(file, i);
        float whole[1] = {0.0f}, piece[1] = {0.0f};
        struct tensor apart = *t;
        apart.data = NULL;
        if (t->elements == 0)
            continue;
        const uint64_t last = t->elements - 1;
        const enum status st = tensor_to_f32(t, last, 1, whole, &err);
        fuzz_check(tensor_to_f32(&apart, last, 1, piece, &err) == st, "what was read is what the file holds");
        fuzz_check(st != OK || whole[0] == piece[0], "what was read is what the file holds");
    }
}

/* Its bytes lie within the file's, and become floats that are finite or are refused by name. */
static uint64_t check_tensor(const struct tensor *t)
{
    uint64_t elements = 1;
    struct error err = {.message = ""};
    static const enum status allowed[] = {ERR_FORMAT};

    fuzz_check(t->rank <= TENSOR_RANK_MAX, "a rank is in its bounds");
    for (uint32_t i = 0; i < t->rank; i++)
        elements *= t->shape[i];
    fuzz_check(t->elements == elements && t->bytes == elements * dtype_bytes(t->dtype), "sizes follow from the shape");
    fuzz_check_utf8(t->name, strlen(t->name));

    float *out = malloc(t->elements * sizeof *out + 1);
    fuzz_check(out != NULL, "there is memory for a tensor");
    const enum status st = tensor_to_f32(t, 0, t->elements, out, &err);
    for (uint64_t i = 0; st == OK && i < t->elements; i++)
        fuzz_check(out[i] - out[i] == 0.0f, "what was widened is finite");
    free(out);
    if (st != OK)
        fuzz_check_error(st, &err, allowed, 1);
    return t->bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_FORMAT};
    struct fuzz_input in = {data, size};
    struct safetensors *file = NULL;
    struct error err = {.message = ""};

    const char *path = fuzz_byte(&in) % 2 == 0 ? fuzz_file(in.at, in.left) : make_file(&in);
    const enum status st = safetensors_open(&file, path, &err);
    if (st != OK) {
        fuzz_check(file == NULL, "outputs are written on success only");
        fuzz_check_error(st, &err, allowed, 1);
        return 0;
    }
    uint64_t bytes = 0;
    uint64_t end = 0;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct tensor *t = safetensors_at(file, i);
        fuzz_check(end == 0 || t->begin == end, "a tensor begins where the one before it ends");
        fuzz_check(safetensors_find(file, t->name) == t, "a tensor is found by its name");
        end = t->begin + t->bytes;
        bytes += check_tensor(t);
    }
    fuzz_check(bytes + LENGTH_BYTES <= safetensors_bytes(file), "tensors lie in the file");
    fuzz_check(end == 0 || end == safetensors_bytes(file), "and fill it to its end");
    check_read(file);
    safetensors_close(file);
    return 0;
}
