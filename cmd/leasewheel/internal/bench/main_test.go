//go:build unix

package bench

import (
	"log/slog"
	"testing"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
)

func TestMain(m *testing.M) {
	root := func() *cobra.Command {
		root := &cobra.Command{Use: "leasewheel"}
		root.AddCommand(NewCommand(), NewContenderCommand())
		return root
	}
	commandtest.Main(m, root, func() {
		connect.ProbeTimeout, connect.LogTo = commandtest.Patience, func(*slog.Logger) {}
	}, func() {})
}
