/* only.h - see only.c. */
#ifndef TESTS_SUPPORT_ONLY_H
#define TESTS_SUPPORT_ONLY_H

/* Runs by itself before main. */
__attribute__((constructor)) void only_tests(void);

#endif
