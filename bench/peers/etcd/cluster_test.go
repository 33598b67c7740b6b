package etcd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// members is how many members a cluster has.
const members = 3

// cluster is a cluster of etcd servers on loopback, with their data on the disk.
type cluster struct {
	endpoints []string
	servers   []*exec.Cmd
}

func start(b testing.TB) *cluster {
	path := os.Getenv("ETCD_SERVER")
	if path == "" {
		out, err := exec.Command("../../../.ci/etcd").Output()
		require.NoError(b, err)
		path = strings.TrimSpace(string(out))
	}
	c := new(cluster)
	var peers, initial []string
	for i := range members {
		c.endpoints = append(c.endpoints, "http://"+redistest.FreeAddress(b))
		peers = append(peers, "http://"+redistest.FreeAddress(b))
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	b.Cleanup(func() {
		for _, server := range c.servers {
			_ = server.Process.Kill()
			_ = server.Wait()
		}
	})
	for i := range members {
		server := exec.Command(path, "--name", fmt.Sprintf("m%d", i), "--data-dir", b.TempDir(),
			"--listen-client-urls", c.endpoints[i], "--advertise-client-urls", c.endpoints[i],
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(initial, ","),
			"--logger", "zap", "--log-level", "error", "--log-outputs", os.DevNull)
		require.NoError(b, server.Start())
		c.servers = append(c.servers, server)
	}
	client := c.dial(b)
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := client.Get(ctx, "any")
		cancel()
		if err == nil {
			return c
		}
		require.Less(b, time.Since(begin), time.Minute, "%v", err)
	}
}

func (c *cluster) dial(b testing.TB) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: c.endpoints, Logger: zap.NewNop()})
	require.NoError(b, err)
	b.Cleanup(func() { _ = client.Close() })
	return client
}

// cpu returns the CPU time of all members, where the system shows it.
func (c *cluster) cpu() (total time.Duration) {
	for _, server := range c.servers {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", server.Process.Pid))
		if err != nil {
			return 0
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		var user, system int64
		fields := strings.Fields(after)
		_, _ = fmt.Sscan(fields[11], &user)
		_, _ = fmt.Sscan(fields[12], &system)
		total += time.Duration(user+system) * 10 * time.Millisecond
	}
	return total
}

// perOp reports the CPU time of the members for each of n operations since begin.
func (c *cluster) perOp(b *testing.B, begin time.Duration, n int) {
	if used := c.cpu() - begin; used > 0 {
		b.ReportMetric(float64(used.Microseconds())/float64(n), "server-µs/op")
	}
}
