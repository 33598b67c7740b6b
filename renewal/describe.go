package renewal

// Describe returns a lease without a watchdog, for use in an [Item] alone. Only
// [Lease.Key], [Lease.Owner], [Lease.TTL] and [Lease.Ref] may be used; they return the
// fields of s. A [Renewer] made of others uses it to pass them a lease under another
// name.
func Describe(s Spec) *Lease {
	return &Lease{key: s.Key, owner: s.Owner, ref: s.Ref, ttl: s.TTL}
}
