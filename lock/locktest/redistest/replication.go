package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// CutReplicas ends every replication link of a master and refuses new ones, while clients
// continue to write: a failover loses what they write from now on. Sentinels promote a
// replica only if its link has not been down for more than 5 s, so kill the master
// before.
func (s *Server) CutReplicas(t TB) {
	t.Helper()
	s.do(t, "ACL", "SETUSER", "default", "-psync", "-sync")
	s.do(t, "CLIENT", "KILL", "TYPE", "replica")
}

// AcceptReplicas undoes [Server.CutReplicas]. SYNC stays forbidden: a replica whose PSYNC
// was refused tries it next, and one that joins by SYNC never reports its offset, so
// nothing ever counts as replicated to it.
func (s *Server) AcceptReplicas(t TB) {
	t.Helper()
	s.do(t, "ACL", "SETUSER", "default", "+psync")
}

// AwaitReplication waits until so many replicas have everything that was written to a
// master before: a failover then loses none of it. It compares offsets, of which replicas
// report theirs each second: since Redis 7.2 WAIT covers only what its own connection wrote.
func (s *Server) AwaitReplication(t TB, replicas int) {
	t.Helper()
	client := redis.NewClient(s.Options())
	defer client.Close()
	written := int64(-1)
	await(t, func(ctx context.Context) error {
		info := client.InfoMap(ctx, "replication")
		if written < 0 {
			offset, err := strconv.ParseInt(info.Item("Replication", "master_repl_offset"), 10, 64)
			if err != nil {
				return fmt.Errorf("the offset of %s: %w", s.URL(), errors.Join(info.Err(), err))
			}
			written = offset
		}
		have := 0
		for n := range 16 {
			var address string
			var port, offset int64
			line := strings.ReplaceAll(info.Item("Replication", fmt.Sprintf("slave%d", n)), ",", " ")
			_, err := fmt.Sscanf(line, "ip=%s port=%d state=online offset=%d", &address, &port, &offset)
			if err == nil && offset >= written {
				have++
			}
		}
		if have < replicas {
			return fmt.Errorf("%d of %d replicas of %s have all of its data", have, replicas, s.URL())
		}
		return nil
	})
}

// do sends one command that must succeed, on a connection of its own.
func (s *Server) do(t TB, args ...any) any {
	t.Helper()
	var reply any
	err := s.ask(func(ctx context.Context, client *redis.Client) (err error) {
		reply, err = client.Do(ctx, args...).Result()
		return err
	})
	if err != nil {
		t.Fatalf("redistest: %v: %v", args, err)
	}
	return reply
}

// ask calls question with a client and a bounded context.
func (s *Server) ask(question func(context.Context, *redis.Client) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	client := redis.NewClient(s.Options())
	defer client.Close()
	return question(ctx, client)
}

// replicates returns nil once the server is a replica that has all of its
// master's data and a link to it.
func (s *Server) replicates(ctx context.Context) error {
	return s.replicationSays(ctx, "role:slave", "master_link_status:up")
}

func (s *Server) isMaster(ctx context.Context) error {
	return s.replicationSays(ctx, "role:master")
}

func (s *Server) replicationSays(ctx context.Context, wanted ...string) error {
	client := redis.NewClient(s.Options())
	defer client.Close()
	info, err := client.Info(ctx, "replication").Result()
	if err != nil {
		return err
	}
	for _, line := range wanted {
		if !strings.Contains(info, line+"\r\n") {
			return fmt.Errorf("%s: %q not in INFO replication", s.URL(), line)
		}
	}
	return nil
}
