// Package exporter is what the exporters of metrics have in common: which lockers,
// watchdogs and wheels they read, and how many labels names of locks may have.
package exporter

import "slices"

// Source is something with statistics, and its name in the label.
type Source[T comparable] struct {
	Name string
	Of   T
	uses int
}

// Sources are exported once each, however often they were added.
type Sources[T comparable] []Source[T]

// Add adds one use of a source. It panics if another one has the name; exporter and what
// begin and describe the text.
func (s *Sources[T]) Add(exporter, what, name string, of T) {
	for i := range *s {
		switch have := &(*s)[i]; {
		case have.Of == of:
			have.uses++
			return
		case have.Name == name:
			panic(exporter + ": another " + what + " called " + name + " was added before")
		}
	}
	*s = append(*s, Source[T]{Name: name, Of: of, uses: 1})
}

// Remove removes one use of a source that was added.
func (s *Sources[T]) Remove(of T) {
	i := slices.IndexFunc(*s, func(have Source[T]) bool { return have.Of == of })
	if (*s)[i].uses--; (*s)[i].uses == 0 {
		*s = slices.Delete(*s, i, i+1)
	}
}

// Has reports whether a source has the name.
func (s Sources[T]) Has(name string) bool {
	return slices.ContainsFunc(s, func(have Source[T]) bool { return have.Name == name })
}
