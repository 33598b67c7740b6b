package quorum

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/leasewheel/leasewheel/lock/driver"
)

var _ driver.Checker = (*Store)(nil)

const (
	// lookupTimeout bounds the search for the addresses of the nodes' hosts.
	lookupTimeout = 2 * time.Second
	// farClocks is a difference between the nodes' clocks that costs a second round trip.
	farClocks = 500 * time.Millisecond
)

// Check examines the nodes that are a [driver.Checker], all at once, and compares them: two
// nodes that are one server, or that share a host, clocks that are apart, and round trips
// that are too long for [Config.NodeTimeout]. A node that does not answer is a finding. It
// takes as long as the slowest node's check, and 2 s more at most to look up the nodes'
// hosts. It returns an error if no node could be examined.
func (s *Store) Check(ctx context.Context, o driver.CheckOptions) (driver.Report, error) {
	if err := s.enter(ctx); err != nil {
		return driver.Report{}, err
	}
	checks := s.checkNodes(ctx, o)
	s.work.Done() // Close does not wait for the lookups
	var r driver.Report
	var silent []nodeCheck
	for _, c := range checks {
		if c.err != nil {
			silent = append(silent, c)
		}
		r.Servers = append(r.Servers, c.report.Servers...)
		r.Findings = append(r.Findings, c.report.Findings...)
	}
	if len(silent) == len(checks) {
		return driver.Report{}, fmt.Errorf("quorum: no node could be checked; node 0: %w", silent[0].err)
	}
	r.Findings = append(r.Findings, s.missing(silent)...)
	r.Findings = append(r.Findings, sameServers(checks)...)
	r.Findings = append(r.Findings, sameHosts(ctx, checks)...)
	r.Findings = append(r.Findings, clocksApart(checks)...)
	r.Findings = append(r.Findings, s.slowNodes(checks)...)
	slices.SortStableFunc(r.Findings, func(a, b driver.Finding) int { return int(b.Severity) - int(a.Severity) })
	return r, nil
}

// nodeCheck is the check of one node.
type nodeCheck struct {
	index  int
	report driver.Report
	err    error
}

// checkNodes checks all nodes at once.
func (s *Store) checkNodes(ctx context.Context, o driver.CheckOptions) []nodeCheck {
	checks := make([]nodeCheck, len(s.nodes))
	var checkers []*node
	for i, n := range s.nodes {
		checks[i].index = i
		if _, ok := n.Store.(driver.Checker); ok {
			checkers = append(checkers, n)
			continue
		}
		checks[i].report.Findings = []driver.Finding{{
			Server: nodeName(i), Topic: "node", Found: "this store cannot examine its servers", Promise: "not examined", Advice: "examine them by other means",
		}}
	}
	p := ask(ctx, s, time.Now().Add(driver.MaxTTL), checkers, func(bounded context.Context, n *node) (driver.Report, error) {
		bounded, cancel := context.WithCancel(bounded)
		defer context.AfterFunc(ctx, cancel)()
		return n.Store.(driver.Checker).Check(bounded, o)
	})
	p.gather(context.WithoutCancel(ctx), func(r reply[driver.Report]) {
		checks[r.node.index].report, checks[r.node.index].err = r.value, r.err
	}, func() bool { return false })
	return checks
}

func nodeName(i int) string { return fmt.Sprintf("node %d", i) }

// missing returns the findings about nodes that could not be examined.
func (s *Store) missing(silent []nodeCheck) (found []driver.Finding) {
	left := len(s.nodes) - len(silent)
	severity, promise := driver.SeverityWarning, "a minority may fail"
	if left < s.majority {
		severity, promise = driver.SeverityError, "a free lock can be acquired"
	}
	promise += fmt.Sprintf(": %d of %d nodes are left, and %d are needed", left, len(s.nodes), s.majority)
	for _, c := range silent {
		found = append(found, driver.Finding{
			Severity: severity, Server: nodeName(c.index), Topic: "answer", Found: "it could not be examined: " + printable(c.err),
			Promise: promise, Advice: "bring it back, or correct how it is reached",
		})
	}
	return found
}

// longestError is how much of an error is in a finding, in bytes.
const longestError = 300

// printable returns the beginning of an error, which may quote a server, without characters
// that a terminal might act upon.
func printable(err error) string {
	text := err.Error()
	text = text[:min(len(text), longestError)]
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// pairs calls f for each two nodes.
func pairs(checks []nodeCheck, f func(a, b *nodeCheck)) {
	for j := range checks {
		for i := range j {
			f(&checks[i], &checks[j])
		}
	}
}

// name names a node and the first of its servers, of which there must be one.
func (c *nodeCheck) name() string {
	return fmt.Sprintf("node %d (%s)", c.index, c.report.Servers[0].Address)
}

// sameServers returns the findings about nodes that are one server.
func sameServers(checks []nodeCheck) (found []driver.Finding) {
	pairs(checks, func(a, b *nodeCheck) {
		if !oneServer(a, b) {
			return
		}
		found = append(found, driver.Finding{
			Severity: driver.SeverityError, Topic: "node", Found: a.name() + " and " + b.name() + " are one server",
			Promise: "a minority may fail: this server has one vote, its failure counts twice, and acquisitions fail with ErrSameServer",
			Advice:  "name servers that fail independently of each other",
		})
	})
	return found
}

// oneServer reports whether two nodes have a server in common.
func oneServer(a, b *nodeCheck) bool {
	return shared(a, b, func(s driver.Server) []string { return []string{s.ID} }) != ""
}

// shared returns a value that servers of two nodes share.
func shared(a, b *nodeCheck, values func(driver.Server) []string) string {
	for _, s := range a.report.Servers {
		for _, v := range values(s) {
			has := func(s driver.Server) bool { return slices.Contains(values(s), v) }
			if v != "" && slices.ContainsFunc(b.report.Servers, has) {
				return v
			}
		}
	}
	return ""
}

// sameHosts returns the findings about nodes of one host.
func sameHosts(ctx context.Context, checks []nodeCheck) (found []driver.Finding) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	hosts := map[string][]string{}
	for _, c := range checks {
		for _, s := range c.report.Servers {
			if hosts[s.Address] == nil {
				hosts[s.Address] = hostsOf(ctx, s.Address)
			}
		}
	}
	pairs(checks, func(a, b *nodeCheck) {
		host := shared(a, b, func(s driver.Server) []string { return hosts[s.Address] })
		if host == "" || oneServer(a, b) {
			return
		}
		found = append(found, driver.Finding{
			Severity: driver.SeverityWarning, Topic: "node", Found: fmt.Sprintf("%s and %s share the host %s", a.name(), b.name(), host),
			Promise: "a minority may fail: they fail together with their host", Advice: "place each node on a host of its own, better in a zone of its own",
		})
	})
	return found
}

// thisHost is the host of sockets and loopback addresses.
const thisHost = "of this process"

// hostsOf returns the addresses of the host in a server's address.
func hostsOf(ctx context.Context, address string) []string {
	if strings.HasPrefix(address, "/") {
		return []string{thisHost}
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil // such as a master known to sentinels
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return []string{strings.ToLower(host)}
	}
	for i, a := range addresses {
		if ip, err := netip.ParseAddr(a); err == nil && ip.Unmap().IsLoopback() {
			addresses[i] = thisHost
		}
	}
	return addresses
}

// clocksApart returns the findings about the nodes' clocks.
func clocksApart(checks []nodeCheck) (found []driver.Finding) {
	pairs(checks, func(a, b *nodeCheck) {
		if len(a.report.Servers) == 0 || len(b.report.Servers) == 0 {
			return
		}
		x, y := a.report.Servers[0], b.report.Servers[0]
		apart := (x.Ahead - y.Ahead).Abs()
		if x.AheadError == 0 || y.AheadError == 0 || apart-x.AheadError-y.AheadError <= farClocks {
			return
		}
		found = append(found, driver.Finding{
			Severity: driver.SeverityWarning, Topic: "clock",
			Found:   fmt.Sprintf("the clocks of %s and %s are %v apart", a.name(), b.name(), apart.Round(time.Millisecond)),
			Promise: "tokens grow: not after a node has lost its data; besides, acquisitions need a second round trip",
			Advice:  "synchronize the clocks of all nodes, by slewing",
		})
	})
	return found
}

// slowNodes returns the findings about round trips that NodeTimeout does not allow for.
func (s *Store) slowNodes(checks []nodeCheck) (found []driver.Finding) {
	for _, c := range checks {
		for _, server := range c.report.Servers {
			if server.WorstRoundTrip < s.config.NodeTimeout/2 {
				continue
			}
			severity := driver.SeverityWarning
			if server.RoundTrip >= s.config.NodeTimeout/2 {
				severity = driver.SeverityError
			}
			found = append(found, driver.Finding{
				Severity: severity, Server: server.Address, Topic: "latency",
				Found: fmt.Sprintf("a round trip took %v, the median is %v; NodeTimeout is %v",
					server.WorstRoundTrip.Round(time.Millisecond), server.RoundTrip.Round(time.Millisecond), s.config.NodeTimeout),
				Promise: "a minority may fail: a node that answers too late counts as failed",
				Advice:  "raise Config.NodeTimeout to a large multiple of a round trip, and the TTL with it",
			})
		}
	}
	return found
}
