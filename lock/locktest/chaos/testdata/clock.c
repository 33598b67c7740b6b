// Preloaded into a server: the wall clock is the host's, stepped and skewed by what
// stands in the file that CHAOS_CLOCK names:
//
//	int64   offset in ns
//	double  skew, as a part of the clock's rate
//	int64   the instant from which the skew counts, in ns since 1970
//
// Newer servers read the wall clock once in a millisecond, and add what the processor's own clock
// has counted since. This one cannot be replaced, so they do not learn that there is one.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static FILE *opened(const char *name, const char *path, const char *mode) {
	if (strcmp(path, "/proc/cpuinfo") == 0) {
		errno = ENOENT;
		return 0;
	}
	FILE *(*next)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, name);
	return next(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode) { return opened("fopen", path, mode); }

FILE *fopen64(const char *restrict path, const char *restrict mode) { return opened("fopen64", path, mode); }
