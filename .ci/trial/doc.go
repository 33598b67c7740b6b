// Command trial runs the tests that a busy machine could decide.
//
//	trial real ./...               tests decided by real time, each alone
//	trial real -times 10 ./...     the same, ten times
//	trial flakes -times 50 ./...   all other tests many times, shuffled, beside a load
//	trial beside . lock/pgstore -- go test ./...
//	                               a command in several folders, three at a time
//
// A test is decided by real time if it stands in a file with the build constraint "real".
// Each runs in a process of its own, with the race detector, while nothing else does. A
// [monitor] measures the machine's stalls meanwhile. A test that fails while the machine
// stalls is run again; one that reports a broken promise never is.
//
// The exit code is 0 if all tests passed, 1 if one failed, 2 if the command is wrong or a
// package does not build.
package main
