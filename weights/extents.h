/* extents.h - the sides that shapes of tensors are made of, as the tables of tensors name them (mixers.h,
 * manifest.c). */
#ifndef WEIGHTS_EXTENTS_H
#define WEIGHTS_EXTENTS_H

/*    name        as messages call it  its value for config c (0: any, the same throughout a block) */
#define EXTENTS(X)                                                                  \
    X(DIM, "dim", c->dim)                                                           \
    X(HIDDEN, "hidden", c->hidden)                                                  \
    X(HEADS, "heads", c->mixer.heads)                                               \
    X(HEAD_WIDTH, "dim / heads", c->mixer.heads == 0 ? 0 : c->dim / c->mixer.heads) \
    X(KERNEL_H, "kernel height", c->mixer.kernel[0])                                \
    X(KERNEL_W, "kernel width", c->mixer.kernel[1])                                 \
    X(TOKENS, "tokens", model_config_tokens(c))                                     \
    X(PATCH_H, "patch height", c->patch[0])                                         \
    X(PATCH_W, "patch width", c->patch[1])                                          \
    X(COLOURS, "colours", 3)                                                        \
    X(CLASSES, "classes", c->classes)                                               \
    X(BYTES, "byte values", BYTE_VALUES)                                            \
    X(FACTORS, "d'", 0)

enum extent {
#define X(name, text, value) EXTENT_##name,
    EXTENTS(X)
#undef X
};

#endif
