// Package check examines the servers of a store on Redis: what they report, their clocks, the
// rights of the user, and whether they keep the promises of locks.
package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/pubsub"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// Limits are the time limits of a check.
type Limits struct {
	Answer  time.Duration // of a server's first answer
	Message time.Duration // of a message on its way from a publisher to a subscriber
	Whole   time.Duration // of the check
}

// DefaultLimits are those of a program. Tests lengthen them.
func DefaultLimits() Limits {
	return Limits{Answer: 5 * time.Second, Message: 2 * time.Second, Whole: 20 * time.Second}
}

// Subject is a store whose servers are examined.
type Subject struct {
	// Nodes returns the servers that the store's client knows: the one, or the masters of a
	// cluster.
	Nodes   func(context.Context) ([]Node, error)
	Cluster bool
	Limits  Limits
	// Replica returns a client of a replica of the master that sentinels know; nil without
	// sentinels.
	Replica  func(address string) *redis.Client
	Replicas int // how many must have a grant

	// Sharded is set for a store that uses sharded pub/sub where a master has it.
	Sharded, NeedsSharded bool

	// Uses returns what a user of the store needs at the key of a lock, mutexes first.
	Uses func(at string) []Use
	// UnusedKeys returns keys on a node that no client uses, of locks whose names begin with
	// prefix; nil if there are none, or if several would have one hash tag.
	UnusedKeys func(prefix, node string, several int) []string
	Mapped     bool // the names of locks are not their keys

	// LastReading returns the store's last reading of a node's clock. The store keeps this
	// one if it has none.
	LastReading func(node string, now transport.Reading) (last transport.Reading, ok bool)
}

// Node is a server to be examined.
type Node struct {
	Client  *redis.Client
	Address string
	replica bool // of the master that sentinels know
}

// Run examines the servers of a store. It returns an error if no server answered, or if the
// only one refused this client.
func Run(ctx context.Context, s *Subject, o driver.CheckOptions) (driver.Report, error) {
	switch {
	case o.TTL < 0:
		return driver.Report{}, fmt.Errorf("redisstore: TTL %v is negative; accepted are positive durations, 0 for %v: %w", o.TTL, driver.DefaultTTL, driver.ErrNotDone)
	case o.TTL == 0:
		o.TTL = driver.DefaultTTL
	}
	if o.Name != "" {
		if err := driver.ValidateName(o.Name); err != nil {
			return driver.Report{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Limits.Whole)
	defer cancel()
	base := time.Now()
	first, end := context.WithTimeout(ctx, s.Limits.Answer)
	nodes, err := s.Nodes(first)
	end()
	if err != nil {
		return driver.Report{}, err
	}
	all := s.examine(ctx, nodes, o, base)
	if !slices.ContainsFunc(all, func(e *examination) bool { return e.err == nil }) {
		return driver.Report{}, all[0].err
	}
	if s.Replica != nil {
		var replicas []Node // that sentinels may promote
		known, _, _ := all[0].info.replicas()
		for _, r := range known {
			client := s.Replica(r.address)
			defer client.Close()
			replicas = append(replicas, Node{Client: client, Address: r.address, replica: true})
		}
		all = append(all, s.examine(ctx, replicas, o, base)...)
	}
	return s.report(all), nil
}

// pingPromise is what a refused PING breaks.
const pingPromise = "none of the locks': Store.Ping fails"

// examination is the check of one server.
type examination struct {
	subject *Subject
	node    Node
	options driver.CheckOptions
	base    time.Time // from which this process's clock counts

	sharded  bool // waiters use sharded pub/sub
	usable   bool // the user has what mutexes need, on the names that were tried
	info     *serverInfo
	server   driver.Server
	findings []driver.Finding
	err      error // why the server did not answer, or refused the client
}

// examine examines servers at once.
func (s *Subject) examine(ctx context.Context, nodes []Node, o driver.CheckOptions, base time.Time) []*examination {
	all := make([]*examination, len(nodes))
	var work sync.WaitGroup
	for i, n := range nodes {
		e := &examination{subject: s, node: n, options: o, base: base, server: driver.Server{Address: n.Address}}
		all[i] = e
		work.Go(func() { e.run(ctx) })
	}
	work.Wait()
	return all
}

// run examines the server.
func (e *examination) run(ctx context.Context) {
	first, cancel := context.WithTimeout(ctx, e.subject.Limits.Answer)
	defer cancel()
	switch err := fault.Classify(e.node.Client.Ping(first).Err()); {
	case errors.Is(err, fault.ErrNoPermission):
		e.found(driver.SeverityNote, "rights", "the user may not run ping", pingPromise, "give the user +ping")
	case errors.Is(err, fault.ErrTooOld) && strings.Contains(err.Error(), "ping"): // not the AUTH before it
		e.found(driver.SeverityNote, "version", "the server lacks, or hides, ping", pingPromise, "do not rename ping, if the program calls Store.Ping")
	case errors.Is(err, fault.ErrMisconfigured), errors.Is(err, fault.ErrCluster): // found below, as writes and as role
	case err != nil:
		e.err = err
		return
	}
	var err error
	if e.info, err = readServerInfo(first, e.node.Client); err != nil {
		e.err = err
		return
	}
	e.judgeInfo()
	for _, examine := range []func(context.Context) error{e.measure, e.tryServer, e.readSlowLog, e.compareConnections, e.compareKeys} {
		if err := examine(ctx); err != nil {
			e.found(driver.SeverityError, "answer", "it gave no usable answer during the check: "+excerpt(err.Error()),
				renewed+": no lock is granted or renewed while it does not answer",
				"look at its log and at the network")
			return
		}
	}
}

// tryServer tries the rights on a master, and for a store in a cluster its kind of pub/sub.
func (e *examination) tryServer(ctx context.Context) error {
	if e.node.replica || e.info.role() == "replica" || e.info.mode() == "sentinel" {
		return nil
	}
	if e.subject.Sharded {
		sharded, err := pubsub.HasShards(ctx, e.node.Client)
		switch {
		case err != nil:
			return fault.Classify(err)
		case sharded:
			e.sharded = true
		case e.subject.NeedsSharded:
			e.found(driver.SeverityError, "pubsub", "it has no sharded pub/sub, which PubSubOn needs, or the user may not use it",
				acquired+": every acquisition is refused", "use Redis 7, or Config.PubSub = PubSubAuto")
		default:
			e.found(driver.SeverityNote, "pubsub", "it has no sharded pub/sub, or the user may not use it: each release goes to every node of the cluster",
				"none: the cluster has more work", "use Redis 7")
		}
	}
	return e.tryRights(ctx)
}

// found adds a finding about the server.
func (e *examination) found(severity driver.Severity, topic, found, promise, advice string) {
	e.findings = append(e.findings, driver.Finding{Severity: severity, Server: e.node.Address, Topic: topic, Found: found, Promise: promise, Advice: advice})
}

// unexamined adds a note about what could not be examined.
func (e *examination) unexamined(topic, why, advice string) {
	e.found(driver.SeverityNote, topic, why, "not examined", advice)
}

// report assembles the findings about all servers.
func (s *Subject) report(all []*examination) (r driver.Report) {
	switch {
	case s.Replica != nil:
		compareReplicas(all)
	case s.Cluster:
		compareMasters(all)
	}
	for _, e := range all {
		if e.err == nil {
			r.Servers = append(r.Servers, e.server)
		} else {
			severity, promise := driver.SeverityError, acquired+": those of this master's slots cannot"
			if e.node.replica {
				severity, promise = driver.SeverityNote, "not examined; it may be unreachable from here alone"
			}
			e.found(severity, "answer", "it does not answer: "+excerpt(e.err.Error()), promise, "look at its log and at the network")
		}
		r.Findings = append(r.Findings, e.findings...)
	}
	slices.SortStableFunc(r.Findings, func(a, b driver.Finding) int { return int(b.Severity) - int(a.Severity) })
	return r
}
