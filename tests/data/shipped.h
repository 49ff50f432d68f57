/* shipped.h - what the reference says of models; written by make_shipped_cases.py. */
#ifndef TESTS_DATA_SHIPPED_H
#define TESTS_DATA_SHIPPED_H

#define SHIPPED_CAT_IS "0.2925\tdeer\n0.2712\tcat\n0.1690\tbird\n0.1336\tairplane\n0.0630\tfrog\n"
#define SHIPPED_CAT_BEST "0.2925\tdeer"
#define SHIPPED_CAT_TWO "0.2925\tdeer\t0.2712\tcat"
#define SHIPPED_CAT_LABEL "deer"
#define SHIPPED_GRAY_IS "0.3501\tdeer\n0.3024\tbird\n0.2852\tcat\n0.0288\tdog\n0.0225\thorse\n"
#define SHIPPED_GRAY_BEST "0.3501\tdeer"
#define SHIPPED_GRAY_TWO "0.3501\tdeer\t0.3024\tbird"
#define SHIPPED_GRAY_LABEL "deer"
#define SHIPPED_HISTORY_GOES_ON "the [[Alaska Park]] in [[1999]]. The [["
#define SHIPPED_NOTHING_GOES_ON "* [[Art of the Art]]\n* ["
#define SHIPPED_FOX_BITS 2.780377
#define SHIPPED_ALL_VALUES_BITS 13.741846
#define SHIPPED_UNSEEN_BITS 1.699105

#endif
