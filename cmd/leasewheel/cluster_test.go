package main

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// startCluster starts a cluster with ACL users.
func startCluster(t *testing.T, users ...string) *redistest.Cluster {
	t.Helper()
	return redistest.StartCluster(t, redistest.ClusterConfig{Server: redistest.Config{Users: users}})
}

// clusterOptions returns the options of a user's clients, whose limits only a hang exceeds.
func clusterOptions(c *redistest.Cluster, user, password string) *redis.ClusterOptions {
	o := c.Options()
	o.Username, o.Password = user, password
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = commandtest.Patience, commandtest.Patience, commandtest.Patience
	o.PoolTimeout = commandtest.Patience
	return o
}

// clusterClient returns a client with clusterOptions. It ends with t, if not before.
func clusterClient(t *testing.T, c *redistest.Cluster, user, password string) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(clusterOptions(c, user, password))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// clusterURL returns a URL for the command, with the limits of clusterOptions.
func clusterURL(c *redistest.Cluster) string {
	return strings.Replace(c.URL(), "redis://", "redis-cluster://", 1) + "&dial_timeout=1m&read_timeout=1m&write_timeout=1m&pool_timeout=1m"
}
