// Package quorum measures locks on a majority of independent servers beside those of
// redsync, on the same servers in the same run:
//
//	REDIS_SERVER=$(../../.ci/redis) go test -v ./quorum -measure
//
// Without -measure it checks in seconds that everybody gets the lock.
package quorum
