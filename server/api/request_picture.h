/* request_picture.h - a picture that is the body of a request, decoded. HTTP threads. */
#ifndef SERVER_API_REQUEST_PICTURE_H
#define SERVER_API_REQUEST_PICTURE_H

#include "engine/image.h"
#include "server/http/http.h"

/* For the table of routes: refuse a request whose body is declared as something else, before it is read. */
http_handler request_picture_type;
/* The same where other types are accepted too; `or_else` lists them at the message's end: ", or ...". */
void request_picture_check_type(struct exchange *x, const char *or_else);

/* Decode the body, then drop it. *ret is set only on OK: picture_clear. Errors: ERR_ARGUMENT (an empty
 * body), ERR_MEDIA_TYPE (declared as another kind), those of picture_decode. */
enum status request_picture_decode(struct picture *ret, struct exchange *x, struct error *err);

/* The same, resized to the model's trained size: *ret is malloc'd, [size[0], size[1], 3]; *width, *height: the upright
 * picture's own. All set only on OK. */
enum status request_picture_trained(uint8_t **ret, uint32_t *width, uint32_t *height, struct exchange *x,
                                    const struct model_config *c, struct error *err);

#endif
