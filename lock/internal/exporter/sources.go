// Package exporter is what the exporters of metrics have in common: which lockers,
// watchdogs and wheels they read, and what labels may be.
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
	lockers   sources[*lock.Locker]      // guarded by mu
	watchdogs sources[*renewal.Watchdog] // guarded by mu; those that are no locker's
	wheels    sources[*wheel.Wheel]      // guarded by mu
}

// New returns the sources of an exporter that has none.
func New(exporter string) *Sources { return &Sources{exporter: exporter} }

// AddLocker adds a locker with its watchdog and its wheel. It panics if the name is in use, as
// the other methods do. gone is called with the label once no locker has it, and may be nil.
func (s *Sources) AddLocker(name string, l *lock.Locker, gone func(label string)) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	label := s.free(name)
	s.wheels.add(s.exporter, label, l.Wheel())
	s.lockers.add(s.exporter, label, l)
	return s.remover(func() {
		s.wheels.remove(l.Wheel())
		if s.lockers.remove(l); gone != nil && !s.lockers.has(label) {
			gone(label)
		}
	})
}

// AddWatchdog adds a watchdog that is not a locker's.
func (s *Sources) AddWatchdog(name string, w *renewal.Watchdog) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchdogs.add(s.exporter, s.free(name), w)
	return s.remover(func() { s.watchdogs.remove(w) })
}

// AddWheel adds a wheel. One that was added before keeps its label.
func (s *Sources) AddWheel(name string, w *wheel.Wheel) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wheels.add(s.exporter, Label(name), w)
	return s.remover(func() { s.wheels.remove(w) })
}

// free returns a name as a label. It panics if a locker or a watchdog has that: both have leases.
func (s *Sources) free(name string) (label string) {
	label = Label(name)
	if s.lockers.has(label) || s.watchdogs.has(label) {
		panic(s.exporter + ": a locker or watchdog called " + label + " was added before")
	}
	return label
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
	for _, l := range s.lockers {
		stats := l.of.Stats()
		r.Lockers[l.label], r.Leases[l.label] = stats, stats.Leases
	}
	for _, w := range s.watchdogs {
		r.Leases[w.label] = w.of.Stats()
	}
	for _, w := range s.wheels {
		r.Wheels[w.label] = WheelStats{w.of.Stats(), w.of.Tick(), w.of.Lags()}
	}
	return r
}

// source is something with statistics, and its label.
type source[T comparable] struct {
	label string
	of    T
	uses  int
}

// sources are exported once each, however often they were added.
type sources[T comparable] []source[T]

// add adds one use of a source. It panics if another one has the label.
func (s *sources[T]) add(exporter, label string, of T) {
	for i := range *s {
		switch have := &(*s)[i]; {
		case have.of == of:
			have.uses++
			return
		case have.label == label:
			panic(exporter + ": another one called " + label + " was added before")
		}
	}
	*s = append(*s, source[T]{label: label, of: of, uses: 1})
}

// remove removes one use of a source that was added.
func (s *sources[T]) remove(of T) {
	i := slices.IndexFunc(*s, func(have source[T]) bool { return have.of == of })
	if (*s)[i].uses--; (*s)[i].uses == 0 {
		*s = slices.Delete(*s, i, i+1)
	}
}

func (s sources[T]) has(label string) bool {
	return slices.ContainsFunc(s, func(have source[T]) bool { return have.label == label })
}
