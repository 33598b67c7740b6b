package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// nodes are the servers that a command line names: one, which stores the locks, or
// several independent ones, of which a majority decides.
type nodes []*server

// openNodes returns the servers that the flags or fallback name. It sends no request yet.
// No error contains a password.
func (s *serverFlags) openNodes(fallback string, c redisstore.Config) (nodes, error) {
	urls, err := s.resolve(fallback)
	switch {
	case err != nil:
		return nil, err
	case len(urls) == 0:
		return nil, errNoServer
	case len(urls)%2 == 0:
		return nil, fmt.Errorf("%d servers: accepted is one, or an odd number from three up, a majority of which decides; %d tolerate no more failures than %d",
			len(urls), len(urls), len(urls)-1)
	}
	var n nodes
	for _, url := range urls {
		server, err := s.connect(url, c)
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
		n = append(n, server)
	}
	if err := n.distinct((*server).place); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// store returns the store of the locks on the servers, and a function that closes it.
func (n nodes) store() (driver.Store, func() error, error) {
	if len(n) == 1 {
		return n[0].store, func() error { return nil }, nil
	}
	var stores []driver.Store
	for _, server := range n {
		stores = append(stores, server.store)
	}
	q, err := quorum.New(stores, quorum.Config{})
	if err != nil {
		return nil, nil, err
	}
	return q, q.Close, nil
}

// address returns the addresses of the servers.
func (n nodes) address() string {
	var all []string
	for _, server := range n {
		all = append(all, server.address)
	}
	return strings.Join(all, ", ")
}

// unavailable is the failure of a command whose server did not answer, or refused.
func unavailable(ctx context.Context, s *server, err error) error {
	err = nodes{s}.mismatch(ctx, err)
	if _, mismatched := errors.AsType[*mismatchError](err); mismatched {
		return exit.Errorf(exit.Unavailable, "%w", err)
	}
	return exit.Errorf(exit.Unavailable, "server %s: %w", s.address, err)
}

func (n nodes) Close() error {
	var errs error
	for _, server := range n {
		errs = errors.Join(errs, server.Close())
	}
	return errs
}

// distinct returns an error if two servers have the same identity. An empty identity is
// unknown. A server with two votes would make no majority.
func (n nodes) distinct(identify func(*server) string) error {
	first := make(map[string]*server)
	for _, server := range n {
		id := identify(server)
		if other := first[id]; other != nil && id != "" {
			return fmt.Errorf("%s and %s are one server; accepted are servers that fail independently of each other", other.address, server.address)
		}
		first[id] = server
	}
	return nil
}

// place identifies the server by its address.
func (s *server) place() string {
	c, ok := s.client.(*redis.Client)
	if !ok || c.Options().Addr == "FailoverClient" {
		return "" // only its sentinels, or nodes, have the address
	}
	return c.Options().Network + " " + strings.ToLower(c.Options().Addr)
}

// identityTimeout bounds the requests for the servers' identities.
const identityTimeout = 250 * time.Millisecond

// independent compares the run ids of the servers that answer: one may have several
// addresses. A server that refuses or does not answer counts as different.
func (n nodes) independent(ctx context.Context) error {
	if len(n) == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	ids := make(map[*server]string)
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, server := range n {
		client, ok := server.client.(*redis.Client)
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
	return n.distinct(func(s *server) string { return ids[s] })
}
