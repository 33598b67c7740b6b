// Command trial runs the tests that a busy machine could decide.
//
//	trial real ./...               tests decided by real time, three at a time
//	trial real -lanes 1 ./...      the same, each alone
//	trial real -times 10 ./...     the same, ten times
//	trial real . lock/pgstore -- ./...
//	                               those of several modules
//	trial flakes -times 50 ./...   all other tests many times, shuffled, beside a load
//	trial beside . lock/pgstore -- go test ./...
//	                               a command in several folders, three at a time
//
// A test is decided by real time if it stands in a file with the build constraint "real".
// Each runs in a process of its own, with the race detector. One that fails beside others is
// run again alone, and a [monitor] measures the machine's stalls meanwhile: what fails while
// the machine stalls is run again. A test that reports a broken promise never is.
//
// The exit code is 0 if all tests passed, 1 if one failed, 2 if the command is wrong or a
// package does not build.
package main
