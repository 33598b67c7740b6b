// Preloaded into a server: the wall clock is the host's, stepped and skewed by what
// stands in the file that CHAOS_CLOCK names:
//
//	int64   offset in ns
//	double  skew, as a part of the clock's rate
//	int64   the instant from which the skew counts, in ns since 1970
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct shared {
	volatile int64_t offset;
	double skew;
	int64_t since;
};

static struct shared *shared;

__attribute__((constructor)) static void begin(void) {
	const char *path = getenv("CHAOS_CLOCK");
	int fd = path ? open(path, O_RDONLY) : -1;
	if (fd < 0) return;
	void *page = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
	if (page != MAP_FAILED) shared = page;
	close(fd);
}

static int64_t wall(void) {
	struct timespec at;
	syscall(SYS_clock_gettime, CLOCK_REALTIME, &at);
	int64_t ns = (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
	if (!shared) return ns;
	return ns + shared->offset + (int64_t)((double)(ns - shared->since) * shared->skew);
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
	(void)zone;
	int64_t ns = wall();
	at->tv_sec = ns / 1000000000;
	at->tv_usec = ns % 1000000000 / 1000;
	return 0;
}

time_t time(time_t *at) {
	time_t seconds = wall() / 1000000000;
	if (at) *at = seconds;
	return seconds;
}

int clock_gettime(clockid_t id, struct timespec *at) {
	if (id != CLOCK_REALTIME) return syscall(SYS_clock_gettime, id, at);
	int64_t ns = wall();
	at->tv_sec = ns / 1000000000;
	at->tv_nsec = ns % 1000000000;
	return 0;
}
