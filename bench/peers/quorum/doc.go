// Package quorum measures locks on a majority of independent servers beside those of
// redsync, on servers of their own for each measurement:
//
//	REDIS_SERVER=$(../../.ci/redis) go test -run '^$' -bench . -benchtime 1x ./quorum
//
// Its tests check that both are granted the lock.
package quorum
