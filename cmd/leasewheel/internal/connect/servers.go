package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Servers are the servers that a command line names: one, which stores the locks, or
// several independent ones, of which a majority decides.
type Servers []*Server

// OpenNodes returns the servers that the flags or fallback name. It sends no request yet.
// No error contains a password.
func (s *Flags) OpenNodes(fallback string, c redisstore.Config) (Servers, error) {
	urls, err := s.resolve(fallback)
	switch {
	case err != nil:
		return nil, err
	case s.folder.all != nil && (s.folder.all.Changed("dir") || len(urls) == 0):
		return s.openFolder(urls, c)
	case len(urls) == 0:
		return nil, noServer()
	case len(urls)%2 == 0:
		return nil, fmt.Errorf("%d servers: accepted is one, or an odd number from three up, a majority of which decides; %d tolerate no more failures than %d",
			len(urls), len(urls), len(urls)-1)
	}
	var n Servers
	for _, url := range urls {
		server, err := s.connectAny(url, c)
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
		n = append(n, server)
	}
	if err := n.distinct((*Server).place); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// connectAny returns the server with a URL, of any engine.
func (s *Flags) connectAny(rawURL string, c redisstore.Config) (*Server, error) {
	e, known, err := engineOf(rawURL)
	switch {
	case err != nil:
		return nil, err
	case known:
		return s.openEngine(e, rawURL, c)
	}
	return s.connect(rawURL, c)
}

// Store returns the store of the locks on the servers, and a function that closes it.
func (n Servers) Store() (driver.Store, func() error, error) {
	if len(n) == 1 {
		return n[0].Locks(), func() error { return nil }, nil
	}
	var stores []driver.Store
	for _, server := range n {
		stores = append(stores, server.Locks())
	}
	q, err := quorum.New(stores, quorum.Config{})
	if err != nil {
		return nil, nil, err
	}
	return q, q.Close, nil
}

// Address returns the addresses of the servers.
func (n Servers) Address() string {
	var all []string
	for _, server := range n {
		all = append(all, server.Address)
	}
	return strings.Join(all, ", ")
}

// Unavailable is the failure of a command whose server did not answer, or refused.
func Unavailable(ctx context.Context, s *Server, err error) error {
	err = Servers{s}.Mismatch(ctx, err)
	if _, mismatched := errors.AsType[*MismatchError](err); mismatched {
		return exit.Errorf(exit.Unavailable, "%w", err)
	}
	return exit.Errorf(exit.Unavailable, "server %s: %w", s.Address, err)
}

// Close closes all of them.
func (n Servers) Close() error {
	var errs error
	for _, server := range n {
		errs = errors.Join(errs, server.Close())
	}
	return errs
}

// distinct returns an error if two servers have the same identity. An empty identity is
// unknown. A server with two votes would make no majority.
func (n Servers) distinct(identify func(*Server) string) error {
	first := make(map[string]*Server)
	for _, server := range n {
		id := identify(server)
		if other := first[id]; other != nil && id != "" {
			return fmt.Errorf("%s and %s are one server; accepted are servers that fail independently of each other", other.Address, server.Address)
		}
		first[id] = server
	}
	return nil
}

// place identifies the server by its address.
func (s *Server) place() string {
	if s.other.Store != nil {
		return "other " + s.Address
	}
	c, ok := s.Client.(*redis.Client)
	if !ok || c.Options().Addr == "FailoverClient" {
		return "" // only its sentinels, or nodes, have the address
	}
	return c.Options().Network + " " + strings.ToLower(c.Options().Addr)
}

// Independent compares the run ids of the servers that answer by the end of ctx: one may have
// several addresses. A server that refuses or does not answer counts as different.
func (n Servers) Independent(ctx context.Context) error {
	if len(n) == 1 {
		return nil
	}
	ids := make(map[*Server]string)
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, server := range n {
		client, ok := server.Client.(*redis.Client)
		if !ok {
			continue // each answer would come from another node of the cluster
		}
		asked.Go(func() {
			info, err := client.InfoMap(ctx, "server").Result()
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			ids[server] = info["Server"]["run_id"]
		})
	}
	asked.Wait()
	return n.distinct(func(s *Server) string { return ids[s] })
}
