//go:build real && unix

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// run refuses servers of a quorum that are one. It gives them 250 ms to identify themselves: a
// dead one must not delay the command, which a slow one does not stop.
func TestRunRefusesOneServerUnderTwoNames(t *testing.T) {
	server, other := redistest.Start(t, redistest.Config{TCP: true}), redistest.Start(t, redistest.Config{})
	_, address := server.Addr()
	_, port, _ := strings.Cut(address, ":")
	commandtest.Eventually(t, "in time", func() bool {
		p := commandtest.Start(t, nil, runLock("job", sh("echo ran"),
			"--store", "redis://127.0.0.1:"+port, "--store", "redis://localhost:"+port, "--store", other.URL())...)
		if p.Wait() == exit.OK {
			return false
		}
		assert.Equal(t, exit.Usage, p.Wait())
		p.RequireOneLine("are one server")
		return true
	})
}
