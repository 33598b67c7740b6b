// Command leasewheel runs programs under distributed locks, measures how
// exactly timers fire, and demonstrates the whole library on a machine with
// nothing installed but Go. See docs/cli.md.
package main

import "os"

func main() {
	os.Exit(execute(newRootCommand(), os.Args[1:], os.Stderr))
}
