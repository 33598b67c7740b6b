package driver

// Several is the Ref of a renewed lease of [KindPermit] with so many permits, above one. That
// of every other lease is the [Kind] of its hold.
type Several int64

// RefOf returns the Ref of the hold's lease.
func RefOf(h *Hold) any {
	if h.Kind == KindPermit && h.Semaphore.Permits > 1 {
		return Several(h.Semaphore.Permits)
	}
	return h.Kind
}

// ParseRef returns the kind of a lease with that Ref, and its number of permits if it has
// several. nil is that of a mutex. ok is false for any other value.
func ParseRef(ref any) (k Kind, s Semaphore, ok bool) {
	switch ref := ref.(type) {
	case nil:
		return KindMutex, Semaphore{}, true
	case Kind:
		return ref, Semaphore{}, true
	case Several:
		return KindPermit, Semaphore{Permits: int64(ref)}, true
	}
	return 0, Semaphore{}, false
}
