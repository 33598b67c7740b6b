package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Faults of the network between processes and servers.
const (
	slow         = "delay"
	lossThere    = "requests lost"
	lossBack     = "replies lost"
	blackhole    = "blackhole"
	late         = "late requests"
	held         = "requests held"
	stall        = "stall"
	hanging      = "renewals hang"
	sliced       = "slices"
	refusedDial  = "connections refused"
	reset        = "reset"
	duplicates   = "duplicates"
	lateMessages = "late replies"
)

// Faults of servers that neither refuse nor change data by themselves.
const (
	frozen    = "server stopped"
	mute      = "master mute"
	paused    = "CLIENT PAUSE"
	restarted = "server restarted"
	dataLost  = "data lost"
	oldData   = "old data" // the server starts again with those of its beginning; it is followed by dataLost
	failover  = "failover"
	flushed   = "SCRIPT FLUSH"
	clients   = "CLIENT KILL"
	stepped   = "clock stepped"
	slowReply = "server starved" // recorded by the round when a busy machine delays a server's answer
)

// Faults by which a server refuses requests.
const (
	memory     = "out of memory"
	readOnly   = "read-only replica"
	noReplicas = "too few replicas"
	busyScript = "script busy"
	forbidden  = "rights taken"
)

// Faults of keys and of messages.
const (
	garbage = "garbage"
	foreign = "foreign value"
	forgery = "forged messages"
	hung    = "server hung" // recorded by the round when a server stops answering by itself
)

// Faults of processes.
const (
	stopped = "process stopped"
	killed  = "process killed"
)

// window is the time in which a fault was active.
type window struct {
	Kind       string
	Place      int // of the processes that it affected; -1: all
	Process    int // the one process that it affected; 0: see Place
	Node       int // -1: all, or none
	Name       string
	Size       time.Duration
	Begin, End instant
}

func (w *window) String() string {
	var b strings.Builder
	fmt.Fprint(&b, w.Kind)
	if w.Process > 0 {
		fmt.Fprintf(&b, " process %d", w.Process)
	} else if w.Place >= 0 {
		fmt.Fprintf(&b, " place %d", w.Place)
	}
	if w.Node >= 0 {
		fmt.Fprintf(&b, " node %d", w.Node)
	}
	if w.Name != "" {
		fmt.Fprintf(&b, " %q", short(w.Name))
	}
	if w.Size != 0 {
		fmt.Fprintf(&b, " %v", w.Size)
	}
	return b.String()
}

// journal records the faults of a round, and when they were active.
type journal struct {
	mu  sync.Mutex
	all []*window
}

// open records the beginning of a fault.
func (j *journal) open(w window) *window {
	w.Begin, w.End = now(), forever
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, &w)
	return &w
}

// note records what is over.
func (j *journal) note(w window) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, &w)
}

// shut records the end of a fault.
func (j *journal) shut(w *window) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.End = now()
}

// between returns the faults that were active at some instant between two.
func (j *journal) between(from, to instant, wanted func(*window) bool) (found []*window) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.all {
		if w.Begin <= to && w.End >= from && (wanted == nil || wanted(w)) {
			found = append(found, w)
		}
	}
	return found
}

func ofKind(kinds ...string) func(*window) bool {
	return func(w *window) bool { return slices.Contains(kinds, w.Kind) }
}

func short(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}
