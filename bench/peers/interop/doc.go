// Package interop proves that leasewheel's locks and those of other languages are the
// same locks: it drives Redisson, redis-py, node-redlock, redlock-universal, redsync and
// redislock, the libraries themselves, against one server.
//
// Each client is a program of its own, which reads requests from standard input and writes
// replies, each a line. Dependencies are pinned, and fetched into .cache when the tests run.
// The newest Redisson and one version of each other client run by default; -versions all runs
// every version.
//
// It contains only tests.
package interop
