/* arithmetic_coder.c - see arithmetic_coder.h. low and high bound the values that the code can still have, as the 32
 * bits after those already written; names and cases as in the paper's figures 3 and 4. */
#include "server/operation/arithmetic_coder.h"

#include <math.h>

#define HALF 0x80000000u
#define QUARTER 0x40000000u

_Static_assert(FREQUENCY_TOTAL_MAX <= QUARTER, "a range of more than a quarter has a number for each frequency");

/* ---- frequencies ------------------------------------------------------------------------------------------------ */

/* e^x for x <= 0: 2^n e^r with r = x - n ln 2 in -ln 2 .. 0, by its series. How exact it is matters little, that it is
 * the same everywhere matters. 0 where it is too little for a frequency. */
static double exp_below(double x)
{
    static const double terms[] = {1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120,
                                   1.0 / 24,      1.0 / 6,      0.5,         1.0,        1.0};
    if (x < -40.0)
        return 0.0;
    const double n = (double)(int)(x * 1.4426950408889634), r = x - n * 0.6931471805599453;
    double sum = 0.0;
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++)
        sum = sum * r + terms[i];
    return ldexp(sum, (int)n);
}

void byte_frequencies_of(struct byte_frequencies *f, const float *logits)
{
    double weights[BYTE_VALUES], sum = 0.0;
    float top = logits[0];
    for (size_t b = 1; b < BYTE_VALUES; b++)
        top = logits[b] > top ? logits[b] : top;
    for (size_t b = 0; b < BYTE_VALUES; b++) {
        weights[b] = exp_below((double)logits[b] - (double)top);
        sum += weights[b];
    }
    const double scale = (double)(FREQUENCY_TOTAL_MAX - BYTE_VALUES) / sum;
    f->before[0] = 0;
    for (size_t b = 0; b < BYTE_VALUES; b++) /* rounded down, so that the total is not exceeded */
        f->before[b + 1] = f->before[b] + 1 + (uint32_t)(weights[b] * scale * (1.0 - 0x1p-40));
}

void byte_frequencies_even(struct byte_frequencies *f)
{
    for (uint32_t b = 0; b <= BYTE_VALUES; b++)
        f->before[b] = b;
}

/* Narrow low .. high to the part that belongs to a byte's frequencies. */
static void narrow(uint32_t *low, uint32_t *high, const struct byte_frequencies *f, uint8_t byte)
{
    const uint64_t range = (uint64_t)*high - *low + 1, total = f->before[BYTE_VALUES];
    *high = *low + (uint32_t)(range * f->before[byte + 1] / total - 1);
    *low += (uint32_t)(range * f->before[byte] / total);
}

/* ---- encoding --------------------------------------------------------------------------------------------------- */

void arithmetic_encoder_init(struct arithmetic_encoder *e, uint8_t *out, size_t size_max)
{
    *e = (struct arithmetic_encoder){.out = out, .size_max = size_max, .high = UINT32_MAX};
}

static void put_bit(struct arithmetic_encoder *e, unsigned bit)
{
    e->partial = e->partial << 1 | bit;
    if (++e->partial_bits < 8)
        return;
    if (e->size < e->size_max)
        e->out[e->size++] = (uint8_t)e->partial;
    else
        e->is_full = true;
    e->partial = e->partial_bits = 0;
}

static void put_bits(struct arithmetic_encoder *e, unsigned bit)
{
    put_bit(e, bit);
    for (; e->opposite > 0 && !e->is_full; e->opposite--)
        put_bit(e, 1 - bit);
}

void arithmetic_encode(struct arithmetic_encoder *e, const struct byte_frequencies *f, uint8_t byte)
{
    narrow(&e->low, &e->high, f, byte);
    for (;;) {
        if (e->high < HALF) {
            put_bits(e, 0);
        } else if (e->low >= HALF) {
            put_bits(e, 1);
        } else if (e->low >= QUARTER && e->high < HALF + QUARTER) {
            e->opposite++;
            e->low -= QUARTER;
            e->high -= QUARTER;
        } else {
            return;
        }
        e->low = e->low << 1;
        e->high = e->high << 1 | 1;
    }
}

/* Two bits tell which quarter lies within low .. high; zeros fill up the byte and whatever follows. */
void arithmetic_encoder_end(struct arithmetic_encoder *e)
{
    e->opposite++;
    put_bits(e, e->low >= QUARTER);
    while (e->partial_bits != 0)
        put_bit(e, 0);
    while (e->size > 0 && !e->is_full && e->out[e->size - 1] == 0) /* the decoder reads zeros there anyway */
        e->size--;
}

/* ---- decoding --------------------------------------------------------------------------------------------------- */

static unsigned next_bit(struct arithmetic_decoder *d)
{
    if (d->left == 0) {
        if (d->at == d->size)
            return 0;
        d->at++;
        d->left = 8;
    }
    d->left--;
    return d->in[d->at - 1] >> d->left & 1u;
}

void arithmetic_decoder_init(struct arithmetic_decoder *d, const uint8_t *in, size_t size)
{
    *d = (struct arithmetic_decoder){.in = in, .size = size, .high = UINT32_MAX};
    for (int i = 0; i < 32; i++)
        d->code = d->code << 1 | next_bit(d);
}

/* The byte that the frequency `at` belongs to. */
static uint8_t byte_at(const struct byte_frequencies *f, uint32_t at)
{
    uint32_t low = 0, high = BYTE_VALUES; /* before[low] <= at < before[high] */
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (f->before[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return (uint8_t)low;
}

uint8_t arithmetic_decode(struct arithmetic_decoder *d, const struct byte_frequencies *f)
{
    const uint64_t range = (uint64_t)d->high - d->low + 1, total = f->before[BYTE_VALUES];
    const uint8_t byte = byte_at(f, (uint32_t)((((uint64_t)d->code - d->low + 1) * total - 1) / range));
    narrow(&d->low, &d->high, f, byte);
    for (;;) {
        if (d->low >= HALF) {
            d->code -= HALF; /* and the bit is shifted out of the bounds too */
        } else if (d->low >= QUARTER && d->high < HALF + QUARTER) {
            d->low -= QUARTER;
            d->high -= QUARTER;
            d->code -= QUARTER;
        } else if (d->high >= HALF) {
            return byte;
        }
        d->low = d->low << 1;
        d->high = d->high << 1 | 1;
        d->code = d->code << 1 | next_bit(d);
    }
}
