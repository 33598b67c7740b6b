package contention

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Calls are the runs of each of a server's commands, including those that scripts call.
type Calls map[string]Call

// Call is how often a command has run, and how long in all: a script with what it calls.
type Call struct {
	Runs int64
	Took time.Duration // in whole µs for all runs together
}

// ReadCalls reads the statistics of a server, or the sums of all masters of a cluster.
func ReadCalls(ctx context.Context, client redis.UniversalClient) (Calls, error) {
	all := make(Calls)
	var mu sync.Mutex
	ask := func(ctx context.Context, c *redis.Client) error {
		info, err := c.InfoMap(ctx, "commandstats").Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for name, stats := range info["Commandstats"] {
			// A subcommand counts for its command: "cmdstat_client|setinfo".
			name, _, _ = strings.Cut(strings.TrimPrefix(name, "cmdstat_"), "|")
			var runs, micros int64
			if _, err := fmt.Sscanf(stats, "calls=%d,usec=%d,", &runs, &micros); err != nil {
				return fmt.Errorf("INFO commandstats: %q", stats)
			}
			c := all[name]
			all[name] = Call{Runs: c.Runs + runs, Took: c.Took + time.Duration(micros)*time.Microsecond}
		}
		return nil
	}
	switch c := client.(type) {
	case *redis.ClusterClient:
		return all, c.ForEachMaster(ctx, ask)
	case *redis.Client:
		return all, ask(ctx, c)
	default:
		return nil, fmt.Errorf("no statistics from a client of type %T", c)
	}
}

// Since returns the calls after the earlier reading, without the reading itself.
func (c Calls) Since(earlier Calls) Calls {
	since := make(Calls)
	for name, now := range c {
		if runs := now.Runs - earlier[name].Runs; runs > 0 && name != "info" {
			since[name] = Call{Runs: runs, Took: now.Took - earlier[name].Took}
		}
	}
	return since
}

// Split divides the calls by name: sent returns true for the commands that clients send, and
// scripts call all others. The statistics do not distinguish them.
func (c Calls) Split(sent func(name string) bool) (clients, scripts int64) {
	for name, call := range c {
		if sent(name) {
			clients += call.Runs
		} else {
			scripts += call.Runs
		}
	}
	return clients, scripts
}

// ReadCPU reads the server's CPU time.
func ReadCPU(ctx context.Context, client *redis.Client) (time.Duration, error) {
	info, err := client.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	var all time.Duration
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		used, err := time.ParseDuration(info["CPU"][field] + "s")
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %w", err)
		}
		all += used
	}
	return all, nil
}
