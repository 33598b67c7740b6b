// House measures the structure of the repository: what a reader has to hold in one head.
//
//	go -C .ci/house run . ../..            a table for each package, and the totals
//	go -C .ci/house run . ../.. lock       the types and the climbing references of packages
//
// A reference is a pair of files of one package, of which the first uses a name that the
// second declares. The files are put into the order of use in which the fewest references
// point upwards, as far as a search finds it; those that still do climb. A package without
// cycles among its files has none.
//
// Test files, testdata and generated files do not count. Exported names are the exported
// types, functions, variables and constants, and the exported methods and fields of
// exported types.
package main
