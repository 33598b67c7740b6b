// Package coexist proves that leasewheel's plain locks and those of redsync and
// redislock, the libraries themselves, are the same locks: processes that speak
// either never hold one at once, and each gets its turn.
//
// It has no code but tests, here where what they need stays out of everybody else's
// requirements.
package coexist
