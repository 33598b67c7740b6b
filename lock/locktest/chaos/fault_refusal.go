//go:build linux

package chaos

import (
	"context"
	"strings"
	"time"
)

var refusalFaults = []faultKind{
	{memory, 12, everywhere, 100 * time.Millisecond, 6 * time.Second, configured("maxmemory", "1", "0")},
	{noReplicas, 1, []site{single, five, cluster}, 50 * time.Millisecond, 3 * time.Second, configured("min-replicas-to-write", "1", "0")},
	{readOnly, 1, []site{single, five}, 50 * time.Millisecond, 3 * time.Second, func(ctx, hard context.Context, r *round, f faultPlan) {
		n := r.target(f)
		w := r.journal.open(window{Kind: readOnly, Place: -1, Node: n.number})
		_ = n.do(ctx, hard, "REPLICAOF", "127.0.0.1", "1")
		<-ctx.Done()
		_ = n.do(hard, hard, "REPLICAOF", "NO", "ONE")
		r.journal.shut(w)
	}},
	{busyScript, 1, proxied, 50 * time.Millisecond, time.Second, func(ctx, hard context.Context, r *round, f faultPlan) {
		n := r.target(f)
		w := r.journal.open(window{Kind: busyScript, Place: -1, Node: n.number})
		_ = n.do(ctx, hard, "CONFIG", "SET", "busy-reply-threshold", "20")
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.admin.Do(hard, "EVAL_RO", "while true do end", 0)
		}()
		<-ctx.Done()
		for running := true; running; {
			_ = n.admin.Do(hard, "SCRIPT", "KILL").Err() // too early, if the script waits for another one
			select {
			case <-ended:
				running = false
			case <-time.After(20 * time.Millisecond):
			}
		}
		_ = n.do(hard, hard, "CONFIG", "SET", "busy-reply-threshold", "2000")
		r.journal.shut(w)
	}},
	{forbidden, 8, alone, 500 * time.Millisecond, 6 * time.Second, func(ctx, hard context.Context, r *round, f faultPlan) {
		n := r.target(f)
		f.Name = r.separable(f.Name)
		allowed := []any{"ACL", "SETUSER", userName, "resetkeys", "~leasewheel:client:*", "~*" + escapePattern(r.plan.Workers[0].Queue.Name) + "*"}
		allowed = append(allowed, "~*"+company+"*")
		for _, other := range r.plan.Names {
			if other.Name != f.Name && !strings.HasPrefix(other.Name, company) {
				allowed = append(allowed, "~*"+escapePattern(other.Name)+"*")
			}
		}
		w := r.journal.open(window{Kind: forbidden, Place: -1, Node: n.number, Name: f.Name})
		_ = n.do(ctx, hard, allowed...)
		<-ctx.Done()
		_ = n.do(hard, hard, "ACL", "SETUSER", userName, "allkeys")
		r.journal.shut(w)
	}},
}

// separable returns name, or another one whose keys no pattern of another name matches.
func (r *round) separable(name string) string {
	shortest := name
	if strings.HasPrefix(name, "lonely") {
		shortest = r.plan.Names[0].Name // one that many use
	}
	for _, other := range r.plan.Names {
		if strings.Contains(shortest, other.Name) {
			shortest = other.Name
		}
	}
	return shortest
}

func configured(option, bad, good string) func(ctx, hard context.Context, r *round, f faultPlan) {
	return func(ctx, hard context.Context, r *round, f faultPlan) {
		n := r.target(f)
		w := r.journal.open(window{Kind: f.Kind, Place: -1, Node: n.number})
		_ = n.do(ctx, hard, "CONFIG", "SET", option, bad)
		<-ctx.Done()
		_ = n.do(hard, hard, "CONFIG", "SET", option, good)
		r.journal.shut(w)
	}
}

// escapePattern returns a pattern that matches s alone.
func escapePattern(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
