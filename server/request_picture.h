/* request_picture.h - a picture that is the body of a request, decoded. For /classify and /explain;
 * HTTP threads. */
#ifndef SERVER_REQUEST_PICTURE_H
#define SERVER_REQUEST_PICTURE_H

#include "engine/image.h"
#include "server/http.h"

/* Before the body: refuse a request whose body is declared as something else. `or_else` ends the message: what is read
 * beside pictures, "" for nothing. */
void request_picture_check_type(struct exchange *x, const char *or_else);

/* Decode the body, which is dropped then. picture_clear *ret, which is set only on OK. Errors: ERR_ARGUMENT (an empty
 * body), those of picture_decode. */
enum status request_picture_decode(struct picture *ret, struct exchange *x, struct error *err);

#endif
