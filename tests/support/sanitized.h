/* sanitized.h - does a sanitizer stand in malloc's place in this build? It keeps what is freed, and takes terabytes of
 * address space. ThreadSanitizer comes with clang, and so with LLVM's OpenMP. */
#ifndef TESTS_SUPPORT_SANITIZED_H
#define TESTS_SUPPORT_SANITIZED_H

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define IS_SANITIZED 1
#elif defined __has_feature
#define IS_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#else
#define IS_SANITIZED 0
#endif
#ifdef __has_feature
#define IS_THREAD_SANITIZED __has_feature(thread_sanitizer)
#else
#define IS_THREAD_SANITIZED 0
#endif

#endif
