// Command crossvet checks packages and their tests for other systems and processors, as go vet
// does, but from their source: it compiles nothing.
//
//	crossvet -platforms "linux/386 windows/amd64" ./...
//
// go vet compiles for each platform all that the packages import, with the standard library.
// crossvet type-checks that, without the bodies of its functions. What it reports of the packages
// themselves is what the compiler's front end and vet's analyzers report.
//
// It checks the files with the build tags of -tags, and on the first processor of each system
// also those without, of packages where these are others: no constraint of ours names a processor.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime/debug"
)

func main() {
	platforms := flag.String("platforms", "", "the `systems/processors`, separated by spaces")
	tags := flag.String("tags", "", "build `tags` to set, separated by commas")
	flag.Parse()
	debug.SetGCPercent(200) // what is collected is little: the syntax is kept for all platforms
	c := newChecker()
	c.checkAll(*platforms, *tags, flag.Args())
	for _, problem := range c.problems {
		fmt.Fprintln(os.Stderr, problem)
	}
	if len(c.problems) > 0 {
		os.Exit(1)
	}
}
