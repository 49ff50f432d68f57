/* address_space.h - is there enough address space (ulimit -v, LimitAS=) for the libraries to start at all? */
#ifndef SERVER_CORE_ADDRESS_SPACE_H
#define SERVER_CORE_ADDRESS_SPACE_H

/* OpenBLAS reserves a buffer for each processor before main runs, and tries again for ever if it gets none: a program
 * with too little address space would hang without a word. This says so on standard error and ends the program with
 * code 1. It runs before the libraries are initialised, so it calls the system and nothing else. */
void address_space_check(int argc, char *argv[], char *envp[]);

/* In the file of each main: have it called. */
#define ADDRESS_SPACE_CHECK                                                                    \
    __attribute__((section(".preinit_array"), used)) static void (*const check_address_space)( \
        int, char *[], char *[]) = address_space_check

#endif
