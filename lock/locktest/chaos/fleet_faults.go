package chaos

import (
	"context"
	"slices"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/internal/network"
)

// deed is the beginning or the end of a fault.
type deed struct {
	at time.Duration
	do func()
}

// inflict begins and ends the faults of the plan. It returns when the last has ended.
func (f *fleet) inflict() {
	var deeds []deed
	add := func(at time.Duration, do func()) { deeds = append(deeds, deed{at, do}) }
	for _, p := range f.plan.Faults {
		begin, end := f.deeds(p)
		var w *window
		add(p.At, func() {
			synctest.Wait()
			w = begin()
		})
		if end != nil {
			add(min(p.At+p.For, f.plan.Active), func() {
				synctest.Wait()
				end(w)
				f.journal.shut(w)
			})
		}
	}
	add(f.plan.Active, func() {})
	slices.SortStableFunc(deeds, func(a, b deed) int { return int(a.at - b.at) })
	for _, d := range deeds {
		time.Sleep(d.at - now().sub(f.begun))
		d.do()
	}
}

// deeds returns the beginning and the end of a fault; the end is nil if it has none.
func (f *fleet) deeds(p faultPlan) (begin func() *window, end func(*window)) {
	node := f.servers[p.Node%len(f.servers)]
	number := -1
	if len(f.servers) > 1 {
		number = p.Node
	}
	// noted is a fault that is over as it begins.
	noted := func(kind string, do func()) (func() *window, func(*window)) {
		return func() *window {
			w := window{Kind: kind, Place: -1, Node: number, Size: p.Size, Begin: now(), End: now()}
			do()
			f.journal.note(w)
			return nil
		}, nil
	}
	switch p.Kind {
	case slow:
		d := time.Duration(1+p.Variant%30) * time.Millisecond
		if p.Variant%5 == 0 {
			d *= 4
		}
		return f.onLinks(p, network.Fault{Requests: d, Replies: d / 2, Jitter: d + 1})
	case lossThere:
		return f.onLinks(p, network.Fault{LoseRequests: true})
	case lossBack:
		return f.onLinks(p, network.Fault{LoseReplies: true})
	case blackhole:
		return f.onLinks(p, network.Fault{LoseRequests: true, LoseReplies: true})
	case late:
		return f.onLinks(p, network.Fault{LateIn: 5 + p.Variant%20, Late: 4 * time.Second})
	case stall:
		return f.onLinks(p, network.Fault{HoldRequests: true, HoldReplies: true})
	case lateMessages:
		return f.onLinks(p, network.Fault{HoldReplies: true})
	case refusedDial:
		return f.onLinks(p, network.Fault{Refuse: true})
	case reset:
		return func() *window {
			for _, l := range f.links(p) {
				l.Reset()
			}
			return f.journal.open(window{Kind: reset, Place: p.Place, Node: -1})
		}, func(*window) {}
	case stopped:
		hold := &network.Fault{HoldRequests: true, HoldReplies: true}
		var m *member
		return func() *window {
				if m = f.current[max(p.Place, 0)]; m.standing != nil {
					m = nil // already
					return f.journal.open(window{Kind: sliced, Place: -1, Node: -1})
				}
				for _, l := range m.links {
					l.Begin(hold)
				}
				m.stop()
				return f.journal.open(window{Kind: stopped, Place: -1, Process: m.number, Node: -1})
			}, func(w *window) {
				if m == nil {
					return
				}
				m.resume(w.Begin)
				for _, l := range m.links {
					l.End(hold)
				}
			}
	case killed:
		var m *member
		return func() *window {
				m = f.current[max(p.Place, 0)]
				if m.dead() {
					return f.journal.open(window{Kind: killed, Place: -1, Process: m.number, Node: -1})
				}
				f.kill(m)
				return f.journal.open(window{Kind: killed, Place: -1, Process: m.number, Node: -1})
			}, func(*window) {
				if f.current[m.place] == m {
					f.start(m.place)
				}
			}
	case frozen:
		return func() *window {
			node.Freeze()
			return f.journal.open(window{Kind: frozen, Place: -1, Node: number})
		}, func(*window) { node.Thaw() }
	case restarted:
		return noted(restarted, func() { node.Restart(node.Save()) })
	case dataLost:
		return noted(dataLost, func() { node.Restart(locktest.Data{}) })
	case oldData:
		var old locktest.Data
		return func() *window {
				old = node.Save()
				return f.journal.open(window{Kind: oldData, Place: -1, Node: number})
			}, func(w *window) {
				node.Restart(old)
				f.journal.note(window{Kind: dataLost, Place: -1, Node: number, Begin: w.Begin, End: now()})
			}
	case stepped:
		if p.Variant%2 == 0 {
			p.Size = -p.Size
		}
		return noted(stepped, func() { node.StepClock(p.Size) })
	case flushed:
		return noted(flushed, func() {
			client := node.Client(f.t)
			if err := client.ScriptFlush(context.Background()).Err(); err != nil {
				f.t.Errorf("the fleet: %v", err)
			}
		})
	}
	panic(p.Kind)
}

// links are those that a fault of the network affects.
func (f *fleet) links(p faultPlan) (all []*network.Network) {
	for place, m := range f.current {
		for n, l := range m.links {
			if (p.Place < 0 || p.Place == place) && (len(f.servers) == 1 || p.Variant%4 == 0 || n == p.Node) {
				all = append(all, l)
			}
		}
	}
	return all
}

func (f *fleet) onLinks(p faultPlan, fault network.Fault) (begin func() *window, end func(*window)) {
	var links []*network.Network
	return func() *window {
			links = f.links(p)
			for _, l := range links {
				l.Begin(&fault)
			}
			return f.journal.open(window{Kind: p.Kind, Place: p.Place, Node: -1, Size: fault.Requests})
		}, func(*window) {
			for _, l := range links {
				l.End(&fault)
			}
		}
}
