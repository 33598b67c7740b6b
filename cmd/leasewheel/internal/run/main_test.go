//go:build unix

package run

import (
	"os"
	"slices"
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) {
	if slices.Contains(os.Args, "run-guard") {
		os.Exit(1) // a guard that ends before its first report
	}
	testmain.Run(m)
}
