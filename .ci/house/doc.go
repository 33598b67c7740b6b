// House measures the structure of the repository: what a reader has to hold in one head.
//
//	go -C .ci/house run . ../..            a table for each package, and the totals
//	go -C .ci/house run . ../.. lock       the types and the climbing references of packages
//	go -C .ci/house run . road ../.. redis-server
//	                                       the files that a Lock and an Unlock enter
//	go -C .ci/house run . tests ../..      the tests of each package by what decides them
//
// A reference is a pair of files of one package, of which the first uses a name that the
// second declares. The files are put into the order of use in which the fewest references
// point upwards, as far as a search finds it; those that still do climb. A package without
// cycles among its files has none.
//
// A road is measured by a program that takes a lock on a server. Each function of the lock,
// the watchdog and the wheel is compiled with a call that prints its name. A return is an
// entry in a file that the road has left before. Goroutines that ran before are left out.
//
// A test is decided by real time if its file has the build tag "real", in virtual time if the
// file imports testing/synctest, and otherwise by logic on servers, or on none.
//
// Apart from that, test files, testdata and generated files do not count. Exported names are the exported
// types, functions, variables and constants, and the exported methods and fields of
// exported types.
package main
