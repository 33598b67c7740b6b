package redistest

import (
	"context"
	"fmt"
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
// master before: a failover then loses none of it.
func (s *Server) AwaitReplication(t TB, replicas int) {
	t.Helper()
	var have int64
	err := s.ask(func(ctx context.Context, client *redis.Client) (err error) {
		conn := client.Conn()
		defer conn.Close()
		// WAIT covers the commands before the last one of its own connection.
		if err := conn.Ping(ctx).Err(); err != nil {
			return err
		}
		have, err = conn.Wait(ctx, replicas, readyTimeout/2).Result()
		return err
	})
	if err != nil || have < int64(replicas) {
		t.Fatalf("redistest: %d of %d replicas of %s have all of its data: %v", have, replicas, s.URL(), err)
	}
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
