/* Preloaded into the daemons: the time of day (CLOCK_REALTIME) is wrong by the seconds in the file CLOCK_ERROR,
 * which may change at any time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static int (*right)(clockid_t, struct timespec *);
static const volatile int64_t *error;

__attribute__((constructor)) static void prepare(void)
{
    void *page = mmap(NULL, sizeof *error, PROT_READ, MAP_SHARED, open(getenv("CLOCK_ERROR"), O_RDONLY), 0);
    if (page == MAP_FAILED)
        abort();
    right = dlsym(RTLD_NEXT, "clock_gettime");
    error = page;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int status = right(clock, time);
    if (status == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += *error;
    return status;
}
