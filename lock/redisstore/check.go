package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

var _ driver.Checker = (*Store)(nil)

const (
	// answerTimeout is how long a server has for its first answer.
	answerTimeout = 5 * time.Second
	// checkTimeout bounds the whole check.
	checkTimeout = 20 * time.Second
	// sentinelAddress is the address in the options of a client that asks sentinels.
	sentinelAddress = "FailoverClient"
)

// Check examines the servers: the one, the master and its replicas that sentinels know, or
// every master of a cluster. It compares version, eviction, memory, persistence, replicas,
// clocks and latency with what the promises of locks need, and tries the rights of the user
// on names that no client uses; a right that is missing leaves an entry in the server's ACL
// LOG. It writes some of these names for a moment, to see whether something spreads the keys of
// a script over servers; they end within half a minute, should the check be cut short. What the
// server does not reveal is a note.
//
// It takes as long as some forty round trips, and 20 s at most. It returns an error if no
// server answered, or if the only one refused this client.
func (s *Store) Check(ctx context.Context, o driver.CheckOptions) (driver.Report, error) {
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
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	base := time.Now()
	nodes, err := s.checkedNodes(ctx)
	if err != nil {
		return driver.Report{}, err
	}
	all := s.examine(ctx, nodes, o, base)
	if err := unanswered(all); err != nil {
		return driver.Report{}, err
	}
	if s.sentinel() {
		replicas, done := s.replicaNodes(all[0].info)
		defer done()
		all = append(all, s.examine(ctx, replicas, o, base)...)
	}
	return s.report(all, o), nil
}

// checkedNode is a server to be examined.
type checkedNode struct {
	client  *redis.Client
	address string
	replica bool // of the master that sentinels know
}

// sentinel reports whether the client asks sentinels for the master.
func (s *Store) sentinel() bool {
	c, ok := s.client.(*redis.Client)
	return ok && c.Options().Addr == sentinelAddress
}

// checkedNodes returns the servers that a client knows.
func (s *Store) checkedNodes(ctx context.Context) ([]checkedNode, error) {
	if s.cluster == nil {
		client := s.client.(*redis.Client) // New accepts no other
		address := client.Options().Addr
		if s.sentinel() {
			address = "the sentinels' master"
		}
		return []checkedNode{{client: client, address: address}}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	masters, err := s.masters(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]checkedNode, len(masters))
	for i, master := range masters {
		nodes[i] = checkedNode{client: master, address: master.Options().Addr}
	}
	slices.SortFunc(nodes, func(a, b checkedNode) int { return cmp.Compare(a.address, b.address) })
	return nodes, nil
}

// replicaNodes returns clients of the replicas that a master reports, and a function that
// closes them. Sentinels may promote each of them, so the store's client would connect to
// them with the same credentials.
func (s *Store) replicaNodes(master *serverInfo) (nodes []checkedNode, done func()) {
	replicas, _, _ := master.replicas()
	for _, r := range replicas {
		o := *s.client.(*redis.Client).Options()
		o.Dialer, o.Network, o.Addr = nil, "tcp", r.address
		o.MinIdleConns, o.DialerRetries = 0, dialOnce
		o.MaintNotificationsConfig = noMaintenance()
		nodes = append(nodes, checkedNode{client: redis.NewClient(&o), address: r.address, replica: true})
	}
	return nodes, func() {
		for _, n := range nodes {
			_ = n.client.Close()
		}
	}
}

// examination is the check of one server.
type examination struct {
	store   *Store
	node    checkedNode
	options driver.CheckOptions
	base    time.Time // from which this process's clock counts

	sharded  bool     // waiters use sharded pub/sub
	more     []string // commands that this cluster needs besides, as in use.commands
	usable   bool     // the user has what mutexes need, on the names that were tried
	info     *serverInfo
	server   driver.Server
	findings []driver.Finding
	err      error // why the server did not answer, or refused the client
}

// examine examines servers at once.
func (s *Store) examine(ctx context.Context, nodes []checkedNode, o driver.CheckOptions, base time.Time) []*examination {
	all := make([]*examination, len(nodes))
	var work sync.WaitGroup
	for i, n := range nodes {
		e := &examination{store: s, node: n, options: o, base: base, server: driver.Server{Address: n.address}}
		all[i] = e
		work.Go(func() { e.run(ctx) })
	}
	work.Wait()
	return all
}

// unanswered returns the first error if no server could be examined.
func unanswered(all []*examination) error {
	for _, e := range all {
		if e.err == nil {
			return nil
		}
	}
	return all[0].err
}

// run examines the server.
func (e *examination) run(ctx context.Context) {
	first, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	switch err := fault.Classify(e.node.client.Ping(first).Err()); {
	case errors.Is(err, ErrNoPermission):
		e.found(driver.SeverityNote, "rights", "the user may not run ping", "none of the locks': Store.Ping fails", "give the user +ping")
	case err != nil:
		e.err = err
		return
	}
	var err error
	if e.info, err = readServerInfo(first, e.node.client); err != nil {
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
	if !e.store.single() && e.store.config.PubSub != PubSubOff {
		publish, err := publishingOf(ctx, e.node.client)
		switch {
		case err != nil:
			return fault.Classify(err)
		case publish == publishSharded:
			e.sharded = true
			e.more = append(e.more, "pubsub shardnumsub #", "spublish # x")
		case e.store.config.PubSub == PubSubOn:
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
	e.findings = append(e.findings, driver.Finding{Severity: severity, Server: e.node.address, Topic: topic, Found: found, Promise: promise, Advice: advice})
}

// unexamined adds a note about what could not be examined.
func (e *examination) unexamined(topic, why, advice string) {
	e.found(driver.SeverityNote, topic, why, "not examined", advice)
}

// report assembles the findings about all servers.
func (s *Store) report(all []*examination, o driver.CheckOptions) driver.Report {
	var r driver.Report
	for _, e := range all {
		if e.err != nil {
			e.findings = append(e.findings, s.missing(e))
		} else {
			r.Servers = append(r.Servers, e.server)
		}
		r.Findings = append(r.Findings, e.findings...)
	}
	switch {
	case s.sentinel():
		r.Findings = append(r.Findings, compareReplicas(all, o.TTL)...)
	case s.cluster != nil:
		r.Findings = append(r.Findings, compareMasters(all, o.TTL)...)
	}
	slices.SortStableFunc(r.Findings, func(a, b driver.Finding) int { return int(b.Severity) - int(a.Severity) })
	return r
}

// missing is the finding about a server that did not answer, while others did.
func (s *Store) missing(e *examination) driver.Finding {
	f := driver.Finding{Severity: driver.SeverityError, Server: e.node.address, Topic: "answer", Found: "it does not answer: " + excerpt(e.err.Error()),
		Promise: acquired + ": those of this master's slots cannot", Advice: "look at its log and at the network"}
	if e.node.replica {
		f.Severity, f.Promise = driver.SeverityNote, "not examined; it may be unreachable from here alone"
	}
	return f
}
