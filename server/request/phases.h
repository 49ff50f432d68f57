/* phases.h - what is done with a request, in order: one table, in phases.c, from its headers to its answer; and what
 * follows at its end. HTTP threads. */
#ifndef SERVER_REQUEST_PHASES_H
#define SERVER_REQUEST_PHASES_H

struct request;

/* Of a new request: the path that it is for, and what an answer may need before any phase has run. */
void phases_begin(struct request *x);
/* Run its phases from where it stopped, until it is answered or has to wait: for its body, or for a job. */
void phases_run(struct request *x);
/* It ends, answered or not: metrics, and a line in the log. */
void phases_end(struct request *x);

#endif
