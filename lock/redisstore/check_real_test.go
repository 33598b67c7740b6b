//go:build real

package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The master and the replicas that sentinels know are examined.
func TestCheckOfSentinels(t *testing.T) {
	t.Parallel()
	set := redistest.StartSentinels(t, redistest.SentinelConfig{Server: durable()})
	replica := set.Nodes[1].Client(t)
	require.NoError(t, replica.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	report := check(t, set.Client(t), redisstore.Config{}, driver.CheckOptions{TTL: longTTL})
	require.Len(t, report.Servers, 3)
	assert.Equal(t, "master", report.Servers[0].Role)
	assert.Equal(t, "replica", report.Servers[1].Role)
	_, address := set.Nodes[1].Addr()
	evicting := about(report, "eviction")
	require.Len(t, evicting, 1, "%+v", report.Findings)
	assert.Equal(t, address, evicting[0].Server)
	replicas := about(report, "replicas")
	require.Len(t, replicas, 2)
	assert.Contains(t, replicas[0].Found, "min-replicas-to-write is 0")
	assert.Contains(t, replicas[1].Found, "asynchronous")
	assert.Len(t, report.Findings, 3)
	assert.NotEmpty(t, about(check(t, set.Client(t), redisstore.Config{Replicas: 3}, driver.CheckOptions{TTL: longTTL}), "replicas"))

	set.Nodes[2].Pause()
	defer set.Nodes[2].Resume()
	store, err := redisstore.New(set.Client(t), redisstore.Config{}) // check would have it wait a minute
	require.NoError(t, err)
	defer store.Close()
	report, err = store.Check(t.Context(), driver.CheckOptions{TTL: longTTL})
	require.NoError(t, err)
	silent := about(report, "answer")
	require.Len(t, silent, 1)
	assert.Equal(t, driver.SeverityNote, silent[0].Severity)
}
