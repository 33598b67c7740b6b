// Package interop proves that leasewheel's locks and those of other languages are the
// same locks: it drives Redisson, redis-py, node-redlock, redlock-universal, redsync and
// redislock, the libraries themselves, against one server.
//
// Each client is a program of its own, which reads a request a line on standard input
// and writes a reply a line. Dependencies are pinned, and fetched into .cache when the
// tests run. The newest Redisson and one of each other client run by default; -versions
// all runs every version.
//
// It has no code but tests.
package interop
