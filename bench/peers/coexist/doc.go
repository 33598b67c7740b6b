// Package coexist proves that leasewheel's plain locks and those of redsync and
// redislock, the libraries themselves, are the same locks: processes that use either never
// hold one at once, and each is granted it.
//
// It contains only tests. They are in this module so that their dependencies are in no other
// go.mod.
package coexist
