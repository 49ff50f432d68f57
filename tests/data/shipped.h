/* shipped.h - what the reference says of models; written by make_shipped_cases.py. */
#ifndef TESTS_DATA_SHIPPED_H
#define TESTS_DATA_SHIPPED_H

#define SHIPPED_CAT_IS "0.5171\tbird\n0.1625\tcat\n0.1151\tfrog\n0.0699\tairplane\n0.0372\tdog\n"
#define SHIPPED_GRAY_IS "0.8009\tcat\n0.0609\tdeer\n0.0291\tdog\n0.0218\thorse\n0.0169\tairplane\n"
#define SHIPPED_HISTORY_GOES_ON "the [[Alaska Park]] in [[1999]]. The [["
#define SHIPPED_NOTHING_GOES_ON "* [[Art of the Art]]\n* ["
#define SHIPPED_FOX_BITS 2.780377
#define SHIPPED_ALL_VALUES_BITS 13.741846
#define SHIPPED_UNSEEN_BITS 1.699105

#endif
