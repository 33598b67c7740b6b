//go:build unix

package bench

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/version"
)

// lockReport is the document of leasewheel bench lock --json. Its schema is
// docs/bench-lock.schema.json.
type lockReport struct {
	Fair      bool              `json:"fair"`
	Hold      time.Duration     `json:"hold_ns"`
	Pairs     []pairFigures     `json:"pairs"`
	HandOvers []handOverFigures `json:"hand_overs"`

	Server  string        `json:"server"`
	Time    time.Time     `json:"time"`
	Version string        `json:"version"`
	Machine bench.Machine `json:"machine"`
}

// pairFigures are those of locks without contention.
type pairFigures struct {
	Goroutines int            `json:"goroutines"`
	Pairs      int64          `json:"pairs"` // of an acquisition and a release
	PerSecond  float64        `json:"pairs_per_s"`
	Latency    latencyFigures `json:"latency"`
	ClientCPU  float64        `json:"client_cpu_ns_per_pair"`
	// The server's own statistics: requests, and calls by scripts.
	Commands       float64 `json:"commands_per_pair"`
	Calls          float64 `json:"script_calls_per_pair"`
	ElapsedSeconds float64 `json:"elapsed_s"`
}

// handOverFigures are those of one lock with many waiters.
type handOverFigures struct {
	Waiters   int            `json:"waiters"`
	Processes int            `json:"processes"`
	Grants    int64          `json:"grants"`
	HandOvers int64          `json:"hand_overs"` // grants to another than the last holder
	PerSecond float64        `json:"hand_overs_per_s"`
	Latency   latencyFigures `json:"latency"` // from the release to the grant
	Wait      latencyFigures `json:"wait"`
	Longest   time.Duration  `json:"longest_wait_ns"` // ended or not
	Jain      float64        `json:"jain"`
	Overlaps  int64          `json:"overlaps"`

	Commands       float64 `json:"commands_per_hand_over"`
	Calls          float64 `json:"script_calls_per_hand_over"`
	ElapsedSeconds float64 `json:"elapsed_s"`
}

func newLockReport(f *lockFlags, s *measuredServer) *lockReport {
	return &lockReport{
		Fair: f.fair, Hold: time.Duration(f.hold), Pairs: []pairFigures{}, HandOvers: []handOverFigures{},
		Server: s.describe(), Time: time.Now().UTC().Truncate(time.Second), Version: version.Name(), Machine: bench.ReadMachine(),
	}
}

func newPairFigures(goroutines int, p *contention.Paired, calls contention.Calls) pairFigures {
	commands, inner := calls.Split(sentByClients)
	each := max(float64(p.Count), 1)
	return pairFigures{
		Goroutines: goroutines, Pairs: p.Count, PerSecond: p.PerSecond(), Latency: figuresOf(p.Latency),
		ClientCPU: float64(p.CPU) / each, Commands: float64(commands) / each, Calls: float64(inner) / each,
		ElapsedSeconds: p.Elapsed.Seconds(),
	}
}

func newHandOverFigures(processes int, h *contention.Handed, calls contention.Calls) handOverFigures {
	commands, inner := calls.Split(sentByClients)
	each := max(float64(h.HandOvers), 1)
	return handOverFigures{
		Waiters: len(h.Grants), Processes: processes, Grants: h.Granted(), HandOvers: h.HandOvers, PerSecond: h.PerSecond(),
		Latency: figuresOf(h.Latency), Wait: figuresOf(h.Wait), Longest: h.Longest,
		Jain: contention.Jain(h.Grants), Overlaps: h.Overlaps,
		Commands: float64(commands) / each, Calls: float64(inner) / each, ElapsedSeconds: h.Elapsed.Seconds(),
	}
}

// sentByClients reports whether a command in the server's statistics is one that clients
// send. Only scripts call the others.
func sentByClients(command string) bool {
	switch command {
	case "eval", "evalsha", "script", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe",
		"ping", "hello", "auth", "select", "client", "cluster", "command", "readonly", "wait":
		return true
	}
	return false
}

func figuresOf(l *contention.Latencies) latencyFigures {
	return latencyFigures{l.Percentile(50), l.Percentile(90), l.Percentile(99), l.Percentile(99.9), l.Percentile(99.99), l.Max()}
}

// broken returns the broken promises, or nothing.
func (r *lockReport) broken() string {
	var complaints []string
	for _, h := range r.HandOvers {
		who := fmt.Sprintf("%d waiters in %d processes", h.Waiters, h.Processes)
		if h.Overlaps > 0 {
			complaints = append(complaints, who+": two held the lock at once, "+output.Grouped(h.Overlaps)+" times")
		}
		if h.Grants == 0 {
			complaints = append(complaints, who+": no waiter got the lock")
		}
	}
	for _, p := range r.Pairs {
		if p.Pairs == 0 {
			complaints = append(complaints, fmt.Sprintf("%d goroutines: none got a lock", p.Goroutines))
		}
	}
	return strings.Join(complaints, "; ")
}

func (r *lockReport) writeTable(w io.Writer) error {
	var b strings.Builder
	kind := "mutexes"
	if r.Fair {
		kind = "fair locks"
	}
	fmt.Fprintf(&b, "%s on %s\n", kind, r.Server)
	if len(r.Pairs) > 0 {
		b.WriteString("\nacquired and released, by goroutines with locks of their own\n\n")
		output.WriteRows(&b, r.pairRows())
	}
	if len(r.HandOvers) > 0 {
		fmt.Fprintf(&b, "\none lock handed over, held for %v each time\n\n", r.Hold)
		output.WriteRows(&b, r.handOverRows())
	}
	verdict := "no lock was held by two at once"
	if complaint := r.broken(); complaint != "" {
		verdict = "BROKEN: " + complaint
	}
	fmt.Fprintf(&b, "\n%s\n", verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *lockReport) pairRows() [][]string {
	rows := [][]string{{"goroutines", "pairs/s", "p50", "p99", "client CPU", "commands"}}
	for _, p := range r.Pairs {
		rows = append(rows, []string{
			output.Grouped(int64(p.Goroutines)), output.Grouped(int64(p.PerSecond)),
			output.Round(p.Latency.P50).String(), output.Round(p.Latency.P99).String(),
			output.Round(time.Duration(p.ClientCPU)).String(), digits2(p.Commands),
		})
	}
	return rows
}

func (r *lockReport) handOverRows() [][]string {
	rows := [][]string{{"waiters", "processes", "hand-overs/s", "p50", "p99", "longest wait", "fairness", "commands"}}
	for _, h := range r.HandOvers {
		rows = append(rows, []string{
			output.Grouped(int64(h.Waiters)), output.Grouped(int64(h.Processes)), output.Grouped(int64(h.PerSecond)),
			output.Round(h.Latency.P50).String(), output.Round(h.Latency.P99).String(), output.Round(h.Longest).String(),
			digits2(h.Jain), digits2(h.Commands),
		})
	}
	return rows
}

func digits2(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
