// Command leasewheel runs programs under distributed locks, measures how
// exactly timers fire, and demonstrates the whole library on a machine with
// nothing installed but Go. See docs/cli.md.
package main

import (
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/root"
)

func main() {
	exit.Process(root.NewCommand("leasewheel"))
}
