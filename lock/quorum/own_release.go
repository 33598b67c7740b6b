package quorum

import (
	"slices"
	"time"
)

// ownReleases are the releases that this store has sent to a node for attempts without a majority.
// Their messages must not wake the store's own waiter: the waiter would acquire the same minority, and
// release it, again and again. Messages do not name the release that caused them, so each that arrives
// in time is attributed to the first release that has none.
type ownReleases struct {
	sent []ownRelease // those whose messages are expected

	refused   string // the alias that the node refused last
	refusedAt event  // when the refusal was recorded
}

type ownRelease struct {
	alias   string    // the owner's name at the node in that attempt
	until   time.Time // the message is expected up to here
	ignored event     // when a message was ignored as its own; zero: none was
}

// event is the place of an event in the order of those of one store: an instant may have several, as in
// a bubble.
type event int64

func (s *Store) event() event { return event(s.events.Add(1)) }

// expect ignores one more message up to until. A refusal of another attempt since this
// one began cancels that: the refused one waits for this very release.
func (o *ownReleases) expect(alias string, began event, until time.Time) {
	if o.refused != alias && o.refusedAt > began {
		return
	}
	now := time.Now()
	o.sent = slices.DeleteFunc(o.sent, func(r ownRelease) bool { return r.until.Before(now) })
	o.sent = append(o.sent, ownRelease{alias: alias, until: until})
}

// ignores reports whether a message that has arrived is an expected one, and ignores it.
func (o *ownReleases) ignores(arrived event) bool {
	now := time.Now()
	i := slices.IndexFunc(o.sent, func(r ownRelease) bool { return r.ignored == 0 && now.Before(r.until) })
	if i < 0 {
		return false
	}
	o.sent[i].ignored = arrived
	return true
}

// cancel stops expecting a message of the release, if there is one of the alias. It reports whether one
// was ignored that is no other expected release's.
func (o *ownReleases) cancel(alias string) (missed bool) {
	i := slices.IndexFunc(o.sent, func(r ownRelease) bool { return r.alias == alias })
	if i < 0 {
		return false
	}
	ignored := o.sent[i].ignored
	o.sent = slices.Delete(o.sent, i, i+1)
	return ignored != 0 && !o.ignores(ignored)
}

// cancelOthers stops expecting messages of other releases. It reports whether one was ignored later
// than that.
func (o *ownReleases) cancelOthers(alias string, since event) (missed bool) {
	o.sent = slices.DeleteFunc(o.sent, func(r ownRelease) bool {
		missed = missed || r.alias != alias && r.ignored > since
		return r.alias != alias
	})
	return missed
}

// expect makes subscriptions ignore the message of a release that n is about to receive,
// for the attempt that n knows by alias.
func (l *listeners) expect(name, alias string, n *node, began event) {
	l.each(name, func(sub *subscription) {
		sub.own[n.index].expect(alias, began, time.Now().Add(sub.store.config.NodeTimeout))
	})
}

// notHeld follows up on a release that found no hold, so that the node published nothing.
// A message that was ignored in its place came from another client.
func (l *listeners) notHeld(name, alias string, n *node) {
	l.each(name, func(sub *subscription) {
		if sub.own[n.index].cancel(alias) {
			sub.note(n.index)
		}
	})
}

// refused follows up on a node's refusal of the attempt that it knows by alias: it may be because of
// another attempt of this store, whose release's message the refused owner then waits for.
func (l *listeners) refused(name, alias string, n *node, began event) {
	l.each(name, func(sub *subscription) {
		own := &sub.own[n.index]
		own.refused, own.refusedAt = alias, sub.store.event()
		if own.cancelOthers(alias, began) {
			sub.note(n.index)
		}
	})
}
