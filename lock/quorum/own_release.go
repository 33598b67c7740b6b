package quorum

import "time"

// ownRelease is the last release that this store has sent to a node for an attempt
// without a majority. Its message must not wake the store's own waiter: the waiter would
// acquire the same minority, and release it, again and again. Messages do not name the
// release that caused them, so the next one that arrives in time is attributed to it.
type ownRelease struct {
	alias   string    // the owner's name at the node in that attempt
	until   time.Time // the message is expected up to here; zero: it is not expected
	ignored time.Time // when a message was ignored; zero: none was

	refused   string    // the alias that the node refused last
	refusedAt time.Time // when the refusal arrived
}

// expect ignores the next message up to until. A refusal of another attempt since this
// one began, or at that very instant, cancels that: the refused one waits for this very release.
func (o *ownRelease) expect(alias string, asked, until time.Time) {
	if o.refused != "" && o.refused != alias && !o.refusedAt.Before(asked) {
		return
	}
	o.alias, o.until, o.ignored = alias, until, time.Time{}
}

// ignores reports whether a message that arrives now is the expected one, and ignores it.
func (o *ownRelease) ignores(now time.Time) bool {
	if !now.Before(o.until) {
		return false
	}
	o.until, o.ignored = time.Time{}, now
	return true
}

// cancel stops expecting a message. It reports whether one was ignored at since or later.
func (o *ownRelease) cancel(since time.Time) (missed bool) {
	missed = !o.ignored.IsZero() && !o.ignored.Before(since)
	o.until, o.ignored = time.Time{}, time.Time{}
	return missed
}

// expect makes subscriptions ignore the message of a release that n is about to receive,
// for the attempt that began at asked and that n knows by alias.
func (l *listeners) expect(name, alias string, n *node, asked time.Time) {
	l.each(name, func(sub *subscription) {
		sub.ownReleases[n.index].expect(alias, asked, time.Now().Add(sub.store.config.NodeTimeout))
	})
}

// notHeld follows up on a release that found no hold, so that the node published nothing.
// A message that was ignored in its place came from another client.
func (l *listeners) notHeld(name, alias string, n *node) {
	l.each(name, func(sub *subscription) {
		if sub.ownReleases[n.index].alias == alias {
			sub.resume(n.index, time.Time{})
		}
	})
}

// refused follows up on a node's refusal of an attempt that began at asked and that the
// node knows by alias. The node may have refused because of another attempt of this
// store, possibly the same owner's. The refused owner then waits for the message of that
// attempt's release.
func (l *listeners) refused(name, alias string, n *node, asked time.Time) {
	l.each(name, func(sub *subscription) {
		own := &sub.ownReleases[n.index]
		own.refused, own.refusedAt = alias, time.Now()
		if own.alias != alias {
			sub.resume(n.index, asked)
		}
	})
}
