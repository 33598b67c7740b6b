//go:build unix

package main

import (
	"cmp"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/root"
)

// requestsTake, set in the environment, is the limit of the requests of processes that the tests
// start, in place of processRequests.
const requestsTake = "LEASEWHEEL_TEST_REQUESTS_TAKE"

// defaultFolder, set in the environment, is the folder of locks if no server is named. There is
// none without it: tests must not use the user's.
const defaultFolder = "LEASEWHEEL_TEST_FOLDER"

func folderOfTests() (string, error) { return cmp.Or(os.Getenv(defaultFolder), "/dev/null/none"), nil }

func TestMain(m *testing.M) {
	inTests := func() {
		connect.RequestTimeout = 10 * time.Second // a server that is not there is tried for as long
		connect.ProbeTimeout, connect.CompletionTimeout = commandtest.Patience, commandtest.Patience
		connect.LogTo = func(*slog.Logger) {}
		connect.DefaultFolder = folderOfTests
	}
	commandtest.Main(m, func() *cobra.Command { return root.NewCommand("leasewheel") }, inTests, func() {
		limit, err := time.ParseDuration(os.Getenv(requestsTake))
		if err != nil {
			limit = processRequests
		}
		connect.RequestTimeout, connect.ProbeTimeout, connect.CompletionTimeout = limit, limit, limit
		connect.DefaultFolder = folderOfTests
	})
}
