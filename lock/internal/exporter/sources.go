// Package exporter is what the exporters of metrics have in common: which lockers,
// watchdogs and wheels they read, their numbers, and what labels may be.
package exporter

import (
	"slices"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// Sources are what an exporter reads. Their methods are safe for concurrent use.
type Sources struct {
	exporter string // begins the texts of panics

	mu        sync.Mutex
	lockers   map[string]*lock.Locker      // by label; guarded by mu
	watchdogs map[string]*renewal.Watchdog // by label; guarded by mu; those that are no locker's
	wheels    map[*wheel.Wheel]*exported   // guarded by mu
}

// exported is how a wheel is exported: once, however often it was added.
type exported struct {
	label string   // the first of its names; it stays when that is removed, until another wheel has it
	names []string // by which it was added and not removed
}

// New returns the sources of an exporter that has none.
func New(exporter string) *Sources {
	return &Sources{exporter: exporter, lockers: make(map[string]*lock.Locker),
		watchdogs: make(map[string]*renewal.Watchdog), wheels: make(map[*wheel.Wheel]*exported)}
}

// AddLocker adds a locker with its watchdog and its wheel. It panics if the name is in use, as
// the other methods do. gone is called with the label once the locker is removed, and may be nil.
func (s *Sources) AddLocker(name string, l *lock.Locker, gone func(label string)) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	label := s.free(name)
	s.use(label, l.Wheel())
	s.lockers[label] = l
	return s.remover(func() {
		s.drop(label, l.Wheel())
		if delete(s.lockers, label); gone != nil {
			gone(label)
		}
	})
}

// AddWatchdog adds a watchdog that is not a locker's. It panics if that is nil, as AddWheel does: the
// next scrape would.
func (s *Sources) AddWatchdog(name string, w *renewal.Watchdog) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	label := s.free(name)
	if w == nil {
		panic(s.exporter + ": the watchdog called " + label + " is nil")
	}
	s.watchdogs[label] = w
	return s.remover(func() { delete(s.watchdogs, label) })
}

// AddWheel adds a wheel. One that was added before keeps its label.
func (s *Sources) AddWheel(name string, w *wheel.Wheel) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	label := Label(name)
	s.use(label, w)
	return s.remover(func() { s.drop(label, w) })
}

// free returns a name as a label. It panics if a locker or a watchdog has that: both have leases.
func (s *Sources) free(name string) (label string) {
	label = Label(name)
	if s.lockers[label] != nil || s.watchdogs[label] != nil {
		panic(s.exporter + ": a locker or watchdog called " + label + " was added before")
	}
	return label
}

// use adds a name to a wheel. It panics if another one is exported under that name, and was added
// by it.
func (s *Sources) use(name string, w *wheel.Wheel) {
	if w == nil {
		panic(s.exporter + ": the wheel called " + name + " is nil")
	}
	if e := s.wheels[w]; e != nil {
		e.names = append(e.names, name)
		return
	}
	if e := s.labelled(name); e != nil {
		free := slices.IndexFunc(e.names, func(other string) bool { return s.labelled(other) == nil })
		if slices.Contains(e.names, name) || free < 0 {
			panic(s.exporter + ": another one called " + name + " was added before")
		}
		e.label = e.names[free]
	}
	s.wheels[w] = &exported{name, []string{name}}
}

// labelled returns the wheel that is exported under a label, or nil.
func (s *Sources) labelled(label string) *exported {
	for _, e := range s.wheels {
		if e.label == label {
			return e
		}
	}
	return nil
}

// drop removes a name of a wheel.
func (s *Sources) drop(name string, w *wheel.Wheel) {
	e := s.wheels[w]
	i := slices.Index(e.names, name)
	if e.names = slices.Delete(e.names, i, i+1); len(e.names) == 0 {
		delete(s.wheels, w)
	}
}

// remover returns a function that calls f once, with mu held.
func (s *Sources) remover(f func()) func() {
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
	})
}

// Reading is a reading of all statistics, by label.
type Reading struct {
	Lockers map[string]observe.Stats
	Leases  map[string]renewal.Stats
	Wheels  map[string]WheelStats
}

// WheelStats are the statistics of a wheel.
type WheelStats struct {
	wheel.Stats
	Tick time.Duration
	Lags wheel.Lags
}

// Read reads the statistics.
func (s *Sources) Read() Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := Reading{make(map[string]observe.Stats), make(map[string]renewal.Stats), make(map[string]WheelStats)}
	for label, l := range s.lockers {
		stats := l.Stats()
		r.Lockers[label], r.Leases[label] = stats, stats.Leases
	}
	for label, w := range s.watchdogs {
		r.Leases[label] = w.Stats()
	}
	for w, e := range s.wheels {
		r.Wheels[e.label] = WheelStats{w.Stats(), w.Tick(), w.Lags()}
	}
	return r
}
