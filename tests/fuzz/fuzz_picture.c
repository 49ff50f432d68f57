/* fuzz_picture.c - bytes that call themselves a picture are refused with a reason, or become pixels of a bounded size
 * that can be made ready for any model. An input is the file with five bytes behind it, which a decoder does not look
 * at: what the model wants. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "engine/picture.h"
#include "server/media/picture.h"
#include "server/media/picture_cost.h"

enum {
    WANTED_BYTES = 5,
    WANTED_MAX = 64,      /* pixels a side: the model's */
    RESIZE_TO_MAX = 256,  /* of the shorter side */
    MANY_PIXELS = 1 << 14 /* go through the same code as few do, a thousand times over */
};

static void check_prepared(const struct picture *p, struct fuzz_input *in)
{
    const uint32_t width = 1 + fuzz_number(in, 1) % WANTED_MAX, height = 1 + fuzz_number(in, 1) % WANTED_MAX;
    const enum interpolation how = fuzz_byte(in) % 2 == 0 ? INTERPOLATION_BICUBIC : INTERPOLATION_BILINEAR;
    const uint32_t resize_to = 1 + fuzz_number(in, 2) % RESIZE_TO_MAX;
    const size_t bytes = (size_t)width * height * 3;
    uint8_t *once = malloc(bytes), *twice = malloc(bytes);
    struct error err = {.message = ""};

    fuzz_check(once != NULL && twice != NULL, "there is memory for a picture");
    memset(once, 0x00, bytes);
    memset(twice, 0xff, bytes);
    fuzz_check(picture_prepare(once, width, height, p, resize_to, how, &err) == OK, "a picture can be prepared");
    fuzz_check(picture_prepare(twice, width, height, p, resize_to, how, &err) == OK, "a picture can be prepared");
    fuzz_check(memcmp(once, twice, bytes) == 0, "every pixel that the model wants is written");
    free(once);
    free(twice);
}

/* What its first bytes promise is told in any case, and decoding keeps to that. */
static void check_cost(const uint8_t *bytes, size_t size, uint32_t shorter)
{
    static const enum status allowed[] = {ERR_MEDIA_TYPE, ERR_PICTURE};
    struct picture_options wish = {.shorter = shorter};
    const struct picture_cost cost = picture_cost_of(bytes, size, &wish);
    struct picture p = {0};
    struct error err = {.message = ""};
    fuzz_check(cost.bytes > 0 && cost.pixels <= PICTURE_FILE_PIXELS_MAX, "a cost is in its bounds");
    wish.bytes_max = cost.bytes;
    const enum status st = picture_decode(&p, bytes, size, &wish, &err);
    if (st != OK) {
        fuzz_check_error(st, &err, allowed, 2);
        return;
    }
    fuzz_check((uint64_t)picture_whole_width(&p) * picture_whole_height(&p) <= cost.pixels, "pixels are as promised");
    fuzz_check((uint64_t)p.width * p.height * 3 <= cost.bytes, "memory is as promised");
    picture_clear(&p);
}

/* Is it worth the time? Of those that have many pixels one in 64 is. */
static bool is_chosen(const uint8_t *bytes, size_t size)
{
    const struct picture_options wish = {.shorter = 0};
    uint32_t sum = 0;
    for (size_t i = 0; i < size; i++)
        sum = 31 * sum + bytes[i];
    return picture_cost_of(bytes, size, &wish).pixels <= MANY_PIXELS || sum % 64 == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const enum status allowed[] = {ERR_MEDIA_TYPE, ERR_PICTURE};
    const size_t tail = size < WANTED_BYTES ? size : WANTED_BYTES;
    struct fuzz_input wanted = {size == 0 ? NULL : data + size - tail, tail};
    struct picture p = {0};
    struct error err = {.message = ""};

    if (!is_chosen(data, size - tail))
        return 0;
    check_cost(data, size - tail, tail > 0 ? 1 + data[size - 1] : 0);
    const enum status st = picture_decode(&p, data, size - tail, NULL, &err);
    if (st != OK) {
        fuzz_check(p.pixels == NULL, "outputs are written on success only");
        fuzz_check_error(st, &err, allowed, 2);
        return 0;
    }
    fuzz_check(p.width > 0 && p.width <= PICTURE_SIDE_MAX && p.height > 0 && p.height <= PICTURE_SIDE_MAX &&
                   (uint64_t)p.width * p.height <= PICTURE_PIXELS_MAX,
               "a picture's size is in its bounds");
    check_prepared(&p, &wanted);
    picture_clear(&p);
    return 0;
}
