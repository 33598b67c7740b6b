package renewal

// Describe returns a lease that no watchdog keeps, for use in an [Item] alone:
// [Lease.Key], [Lease.Owner], [Lease.TTL] and [Lease.Ref] tell what s says, and
// nothing else of it may be used. A [Renewer] that is made of others describes with
// it a lease that they know by another name.
func Describe(s Spec) *Lease {
	return &Lease{key: s.Key, owner: s.Owner, ref: s.Ref, ttl: s.TTL}
}
