//go:build real && unix

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A node that is down costs the list its own locks and the request limit of the others.
func TestLsWithoutOneNode(t *testing.T) {
	redistest.Need(t)
	cluster := redistest.StartCluster(t, redistest.ClusterConfig{})
	const count = 1200 // a process of the tests keeps a thousand lines of its output
	writeLocks(t, cluster.Client(t), count)
	cluster.Nodes[1].Kill()
	p := commandtest.Start(t, []string{connect.URLVariable + "=" + strings.Replace(cluster.URL(), "redis://", "redis-cluster://", 1)}, "ls", "--json")
	require.Equal(t, exit.Unavailable, p.Wait())
	p.RequireOneLine("server ")
	lines := slices.Collect(strings.Lines(p.Stdout.String()))
	assert.InDelta(t, count*2/3, len(lines), count/10, "what the others have")
}
