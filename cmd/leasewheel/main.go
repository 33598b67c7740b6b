// Command leasewheel runs programs under distributed locks, measures how
// exactly timers fire, and demonstrates the whole library on a machine with
// nothing installed but Go. See docs/cli.md.
package main

import (
	"os"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/root"
)

func main() {
	os.Exit(exit.Execute(root.NewCommand("leasewheel"), os.Args[1:], os.Stderr))
}
