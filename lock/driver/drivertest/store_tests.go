package drivertest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// storeTests check the contract of driver.Store by itself.
var storeTests = []test{
	{"GrantsWhatIsFree", grantsWhatIsFree},
	{"GrantsAgainWhatIsTheOwners", grantsAgainWhatIsTheOwners},
	{"CountsFurtherHolds", countsFurtherHolds},
	{"RefusesFurtherHoldsOfNone", refusesFurtherHoldsOfNone},
	{"ReleasesTheOwnersOnly", releasesTheOwnersOnly},
	{"ReleasesOnce", releasesOnce},
	{"ForgetsAfterTheTTL", forgetsAfterTheTTL},
	{"TokensGrow", tokensGrow},
	{"RenewsEachLeaseByItself", renewsEachLeaseByItself},
	{"RenewsForTheTTL", renewsForTheTTL},
	{"NeverRevivesByRenewal", neverRevivesByRenewal},
	{"WakesOnRelease", wakesOnRelease},
	{"WakesNoListenerAfterClose", wakesNoListenerAfterClose},
	{"WakesEachListener", wakesEachListener},
	{"SubscribesManyLocks", subscribesManyLocks},
	{"SubscribesAgainAndAgain", subscribesAgainAndAgain},
	{"KeepsNamesApart", keepsNamesApart},
	{"NamesItsKinds", namesItsKinds},
	{"RefusesOtherKinds", refusesOtherKinds},
	{"HeedsTheContext", heedsTheContext},
	{"ChangesNothingAfterTheDeadline", changesNothingAfterTheDeadline},
	{"AcceptsAnAnnouncement", acceptsAnAnnouncement},
	{"GrantsNothingLate", late(grantsNothingLate)},
	{"RenewsNothingLate", late(renewsNothingLate)},
	{"ReleasesWhatIsUnderWay", late(releasesWhatIsUnderWay)},
	{"FreesTheDeadAfterTheTTL", dead(freesTheDeadAfterTheTTL)},
	{"KeepsItsHoldsThroughARestart", restarting(keepsItsHoldsThroughARestart)},
	{"GrantsAnewOnceItsDataAreLost", restarting(grantsAnewOnceItsDataAreLost)},
	{"TokensGrowWhenClocksAreSetBack", stepping(tokensGrowWhenClocksAreSetBack)},
}

// queueTests check the queue of a mutex's waiters.
var queueTests = []test{
	{"SkipsDeadWaiters", dead(skipsDeadWaiters)},
	{"EndsGrantsThatAreNotRenewed", endsGrantsThatAreNotRenewed},
	{"KeepsAHoldForAWhile", func(b *bench) { b.keeps(b.store(), b.hold("a", "me:1"), b.hold("a", "you:1")) }},
	{"AgreesOnTokens", agreesOnTokens},
}

// hold returns the request of an owner for one hold, which does not end by itself while
// the test runs.
func (b *bench) hold(name, owner string) *driver.Hold {
	return &driver.Hold{Kind: b.kind, Name: b.name(name), Owner: named(owner), Count: 1, TTL: hour}
}

// named returns the owner with a short name, "<client>:<n>", in the format of owners: a
// store may identify locks by it.
func named(owner string) string {
	client, n, _ := strings.Cut(owner, ":")
	return fmt.Sprintf("%08x-0000-4000-8000-000000000000:%s", crc32.ChecksumIEEE([]byte(client)), n)
}

// brief returns hold's request for a lease that ends within the test.
func (b *bench) brief(name, owner string) *driver.Hold { return lasting(b.hold(name, owner), ttl) }

// holding returns the request that sets an owner's holds to count.
func (b *bench) holding(name, owner string, count int64) *driver.Hold {
	h := b.hold(name, owner)
	h.Count = count
	return h
}

// acquire acquires a hold. An acquisition that a busy machine has not answered in time is
// repeated after a pause, in which the store's cleanup releases its hold.
func (b *bench) acquire(s driver.Store, h *driver.Hold) driver.Answer {
	b.Helper()
	begin := time.Now()
	answer, err := s.Acquire(b.Context(), h)
	for errors.Is(err, lock.ErrUnavailable) && time.Since(begin) < b.late() {
		b.Logf("acquire %q again: %v", h.Name, err)
		time.Sleep(2 * time.Second)
		answer, err = s.Acquire(b.Context(), h)
	}
	if err != nil {
		b.Fatalf("acquire %q for %s: %v", h.Name, h.Owner, err)
	}
	return answer
}

// answered acquires a hold, and fails the test unless the answer has the verdict.
func (b *bench) answered(s driver.Store, h *driver.Hold, want driver.Verdict) driver.Answer {
	b.Helper()
	answer := b.acquire(s, h)
	if answer.Verdict != want {
		b.Fatalf("acquire %q for %s with %d holds: got %s, want %s; the answer is %+v",
			h.Name, h.Owner, h.Count, word(answer.Verdict), word(want), answer)
	}
	return answer
}

// word is the name of a verdict.
func word(v driver.Verdict) string {
	switch v {
	case driver.Refused:
		return "Refused"
	case driver.Granted:
		return "Granted"
	case driver.NotHeld:
		return "NotHeld"
	}
	return fmt.Sprintf("verdict %d", v)
}

func (b *bench) granted(s driver.Store, h *driver.Hold) driver.Answer {
	b.Helper()
	return b.answered(s, h, driver.Granted)
}

func (b *bench) refused(s driver.Store, h *driver.Hold) driver.Answer {
	b.Helper()
	return b.answered(s, h, driver.Refused)
}

// follows reports whether a token is right for the next grant after the token last: it is
// larger, or 0 from a store without tokens.
func (b *bench) follows(token, last int64) bool {
	if b.suite.Untokened {
		return token == 0
	}
	return token > last
}

// release lowers a hold, and fails the test unless the answer is want. An earlier try without an
// answer may have released it.
func (b *bench) release(s driver.Store, h *driver.Hold, want bool) {
	b.Helper()
	var held, maybe bool
	err := b.again(func() (err error) {
		held, err = s.Release(b.Context(), h)
		maybe = maybe || errors.Is(err, lock.ErrUnavailable) && !errors.Is(err, lock.ErrNotDone)
		return err
	})
	if err != nil || held != want && !(want && maybe) {
		b.Fatalf("release %q of %s to %d: got %v, %v, want %v", h.Name, h.Owner, h.Count, held, err, want)
	}
}

// again sends a request that has the same effect when it is sent again, until the store answers: a
// busy machine may take longer than the store waits.
func (b *bench) again(send func() error) error {
	err := send()
	for begin := time.Now(); errors.Is(err, lock.ErrUnavailable) && time.Since(begin) < b.late(); err = send() {
		b.Logf("again: %v", err)
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func grantsWhatIsFree(b *bench) {
	mine, theirs := b.store(), b.store()
	if answer := b.granted(mine, b.hold("a", "me:1")); !b.follows(answer.Token, 0) {
		b.Errorf("a grant came with token %d", answer.Token)
	}
	answer := b.refused(theirs, b.hold("a", "you:1"))
	if answer.Wait <= 0 || answer.Wait > hour || answer.Foreign {
		b.Errorf("refused with %+v; the holder has a lock of this format for at most %v", answer, hour)
	}
	b.release(mine, b.holding("a", "me:1", 0), true)
	b.granted(theirs, b.hold("a", "you:1"))
}

// An acquisition whose reply was lost is sent again, and must not count twice.
func grantsAgainWhatIsTheOwners(b *bench) {
	s := b.store()
	first := b.granted(s, lasting(b.hold("a", "me:1"), 2*ttl))
	again := b.granted(s, b.hold("a", "me:1"))
	if again.Token != first.Token {
		b.Errorf("the same grant came with token %d and then %d", first.Token, again.Token)
	}
	time.Sleep(b.over(2 * ttl))
	b.refused(s, b.hold("a", "you:1")) // the second request began a fresh TTL
	b.release(s, b.holding("a", "me:1", 0), true)
	b.granted(s, b.hold("a", "you:1"))
}

func countsFurtherHolds(b *bench) {
	s := b.store()
	first := b.granted(s, b.hold("a", "me:1"))
	for range 2 { // sent twice, counted once
		if further := b.granted(s, b.holding("a", "me:1", 2)); further.Token != first.Token {
			b.Errorf("a further hold came with token %d instead of %d", further.Token, first.Token)
		}
	}
	for range 2 {
		b.release(s, b.holding("a", "me:1", 1), true)
	}
	b.refused(s, b.hold("a", "you:1"))
	b.release(s, b.holding("a", "me:1", 0), true)
	b.granted(s, b.hold("a", "you:1"))

	// What is left has the TTL of the request that lowered it. A writer's lock is never shortened.
	for name, ttls := range map[string][2]time.Duration{"longer": {3 * ttl, hour}, "shorter": {hour, ttl}} {
		b.granted(s, lasting(b.hold(name, "me:1"), ttls[0]))
		b.granted(s, lasting(b.holding(name, "me:1", 2), ttls[0]))
		b.release(s, lasting(b.holding(name, "me:1", 1), ttls[1]), true)
	}
	time.Sleep(b.over(3 * ttl))
	b.refused(s, b.hold("longer", "you:1"))
	if b.kind != driver.KindWrite {
		b.granted(s, b.hold("shorter", "you:1"))
	}
}

// keeps checks that a release can keep a hold from the next one for a while, shorter than its TTL.
func (b *bench) keeps(s driver.Store, h, next *driver.Hold) {
	b.Helper()
	b.granted(s, h)
	ended := back(h)
	ended.Keep = ttl
	if b.suite.Unkept {
		if _, err := s.Release(b.Context(), ended); !errors.Is(err, driver.ErrUnsupported) {
			b.Errorf("a release that is to keep the hold: got %v, want an error that matches ErrUnsupported", err)
		}
		b.refused(s, next)
		return
	}
	sent, limit := time.Now(), b.over(ttl)
	if b.suite.Split { // a refusal may be of servers that the release reaches later
		limit = h.TTL
	}
	b.release(s, ended, true)
	answer := b.acquire(s, next)
	switch took := time.Since(sent); {
	case answer.Verdict != driver.Refused && took < ttl:
		b.Errorf("got %+v %v after a release that keeps the hold for %v", answer, took, ttl)
	case answer.Verdict == driver.Refused && (answer.Wait <= 0 || answer.Wait > limit):
		b.Errorf("refused by %+v; the hold stays for %v", answer, ttl)
	}
	time.Sleep(b.over(ttl + b.suite.Step)) // it is rounded up
	b.granted(s, next)
}

// A driver.Fencer gives proposed tokens that are a little ahead, and has those of its nodes raised.
func agreesOnTokens(b *bench) {
	s := b.store()
	f, ok := s.(driver.Fencer)
	if !ok || b.suite.Untokened {
		b.Skip("the store's tokens are not raised")
	}
	owners, h := 0, b.hold("a", "me:0")
	grant := func(proposed int64) (token int64, clock time.Time) {
		b.Helper()
		owners++
		h = b.hold("a", fmt.Sprintf("me:%d", owners))
		answer, clock, err := f.AcquireProposing(b.Context(), h, proposed)
		if err != nil || answer.Verdict != driver.Granted {
			b.Fatalf("got %+v, %v for a proposal", answer, err)
		}
		return answer.Token, clock
	}
	_, clock := grant(0)
	b.release(s, back(h), true)
	near, far := (clock.UnixMicro()+999_000)/16*16, (clock.UnixMicro()+hour.Microseconds())/16*16
	token, now := grant(near)
	if !clock.IsZero() && token != near && now.UnixMicro() < near {
		b.Errorf("got token %d, not the proposed %d", token, near)
	}
	if held, err := f.Fence(b.Context(), b.hold("a", "you:1"), far); err != nil || held {
		b.Errorf("raised another's token: %v, %v", held, err)
	}
	b.release(s, back(h), true)
	if next, _ := grant(far); next <= token || !clock.IsZero() && next >= far {
		b.Errorf("got token %d after %d, with a proposal an hour ahead: %d", next, token, far)
	}
	if held, err := f.Fence(b.Context(), h, far); err != nil || !held {
		b.Errorf("raised no token: %v, %v", held, err)
	}
	b.release(s, back(h), true)
	if next, _ := grant(0); next <= far {
		b.Errorf("got token %d after it was raised to %d", next, far)
	}
}

// A holder that has lost its lock must not be granted it again unnoticed.
func refusesFurtherHoldsOfNone(b *bench) {
	s := b.store()
	if answer := b.acquire(s, b.holding("a", "me:1", 2)); answer.Verdict != driver.NotHeld {
		b.Errorf("a further hold of a free lock: got %s, want NotHeld; the answer is %+v", word(answer.Verdict), answer)
	}
	b.granted(s, b.hold("a", "you:1"))
	if answer := b.acquire(s, b.holding("a", "me:1", 2)); answer.Verdict != driver.NotHeld {
		b.Errorf("a further hold of another's lock: got %s, want NotHeld; the answer is %+v", word(answer.Verdict), answer)
	}
}

func releasesTheOwnersOnly(b *bench) {
	s := b.store()
	b.granted(s, b.hold("a", "me:1"))
	b.release(s, b.holding("a", "you:1", 0), false)
	b.release(s, b.holding("a", "me:2", 0), false)
	b.release(s, b.holding("a", "you:1", 1), false)
	b.refused(s, b.hold("a", "you:1"))
}

func releasesOnce(b *bench) {
	s := b.store()
	b.release(s, b.holding("a", "me:1", 0), false)
	b.granted(s, b.hold("a", "me:1"))
	b.release(s, b.holding("a", "me:1", 0), true)
	b.release(s, b.holding("a", "me:1", 0), false)
	b.release(s, b.holding("a", "me:1", 1), false)
	b.granted(s, b.hold("a", "you:1"))
}

func forgetsAfterTheTTL(b *bench) {
	s := b.store()
	b.granted(s, b.brief("a", "me:1"))
	time.Sleep(b.over(ttl))
	b.granted(s, b.hold("a", "you:1"))
	b.release(s, b.holding("a", "me:1", 0), false)
	b.refused(s, b.hold("a", "me:2"))
}

func tokensGrow(b *bench) {
	mine, theirs := b.store(), b.store()
	var last int64
	check := func(token int64) {
		b.Helper()
		if !b.follows(token, last) {
			b.Fatalf("token %d came after %d", token, last)
		}
		last = token
	}
	for i := range 20 {
		s, owner := mine, fmt.Sprintf("me:%d", i)
		if i%2 == 1 {
			s = theirs
		}
		h := b.hold("a", owner)
		h.Queue.Reserve = 1000
		answer := b.granted(s, h)
		check(answer.Token)
		last += answer.Reserved
		b.release(s, b.holding("a", owner, 0), true)
		time.Sleep(100 * time.Microsecond) // in which fewer tokens than that are free, in virtual time
	}
	b.granted(mine, b.brief("a", "dead:1"))
	time.Sleep(b.over(ttl))
	check(b.granted(mine, b.hold("a", "next:1")).Token)
	b.delete("a")
	check(b.granted(mine, b.hold("a", "next:2")).Token)
}

// renewals returns what a watchdog passes to Renew for these holds.
func renewals(holds ...*driver.Hold) []renewal.Item {
	items := make([]renewal.Item, len(holds))
	for i, h := range holds {
		items[i] = renewal.Item{Key: h.Name, Owner: h.Owner, Ref: driver.RefOf(h), TTL: h.TTL}
	}
	return items
}

func (b *bench) renew(s driver.Store, items []renewal.Item, want ...renewal.Outcome) {
	b.Helper()
	_ = b.again(func() (err error) { // which the items report, too
		for i := range items {
			items[i].Outcome, items[i].Err = renewal.Unknown, nil
		}
		s.Renew(b.Context(), items)
		for _, item := range items {
			if item.Outcome == renewal.Unknown {
				err = errors.Join(err, item.Err)
			}
		}
		return err
	})
	for i, item := range items {
		// Of several servers, those that answer first may not have granted it yet.
		split := b.suite.Split && want[i] == renewal.Taken && item.Outcome == renewal.Gone
		if item.Outcome != want[i] && !split {
			b.Errorf("renewal of %q by %s: got %v (%v), want %v", item.Key, item.Owner, item.Outcome, item.Err, want[i])
		}
	}
}

func renewsEachLeaseByItself(b *bench) {
	s := b.store()
	for name, owner := range map[string]string{"mine": "me:1", "theirs": "you:1", "mine too": "me:2"} {
		b.granted(s, lasting(b.hold(name, owner), 2*ttl))
	}
	taken := renewals(b.hold("theirs", "me:3"))
	for by := time.Now().Add(ttl); taken[0].Outcome != renewal.Taken; time.Sleep(10 * time.Millisecond) {
		if b.renew(s, taken, renewal.Taken); taken[0].Outcome != renewal.Taken && (!b.suite.Split || time.Now().After(by)) {
			b.Fatalf("another's lock is still %v after %v", taken[0].Outcome, ttl)
		}
	}
	b.renew(s, renewals(b.hold("mine", "me:1"), b.hold("theirs", "me:3"), b.hold("nobody's", "me:4"), b.hold("mine too", "me:2")),
		renewal.Renewed, renewal.Taken, renewal.Gone, renewal.Renewed)
	time.Sleep(b.over(2 * ttl))
	b.refused(s, b.hold("mine", "you:2"))
	b.refused(s, b.hold("mine too", "you:2"))
	b.granted(s, b.hold("theirs", "you:2")) // a refused renewal extends nothing
}

// A renewal lasts for its own TTL, and no longer.
func renewsForTheTTL(b *bench) {
	s := b.store()
	b.granted(s, b.brief("a", "me:1"))
	sent := time.Now()
	b.renew(s, renewals(lasting(b.hold("a", "me:1"), 3*ttl)), renewal.Renewed)
	time.Sleep(2 * ttl)
	answer := b.acquire(s, b.hold("a", "you:1"))
	if took := time.Since(sent); answer.Verdict == driver.Granted && took < b.kept(3*ttl) {
		b.Fatalf("free %v after a renewal for %v", took, 3*ttl)
	}
	time.Sleep(b.over(ttl))
	b.granted(s, b.hold("a", "you:1"))
}

func neverRevivesByRenewal(b *bench) {
	s := b.store()
	items := renewals(b.hold("a", "me:1"))
	b.granted(s, b.hold("a", "me:1"))
	b.release(s, b.holding("a", "me:1", 0), true)
	b.renew(s, items, renewal.Gone)
	b.granted(s, b.hold("a", "you:1"))
}

// listen subscribes and returns the channel of the wakes.
func (b *bench) listen(s driver.Store, name string) (<-chan struct{}, driver.Subscription) {
	b.Helper()
	return b.listenFor(s, b.hold(name, "waiter:1"))
}

// listenFor subscribes for a request.
func (b *bench) listenFor(s driver.Store, h *driver.Hold) (<-chan struct{}, driver.Subscription) {
	b.Helper()
	woken := make(chan struct{}, 100)
	var sub driver.Subscription
	err := b.again(func() (err error) {
		sub, err = s.Subscribe(b.Context(), h, func(driver.Notice) { woken <- struct{}{} })
		return err
	})
	if err != nil {
		b.Fatalf("subscribe %s to %q: %v", h.Owner, h.Name, err)
	}
	return woken, sub
}

func (b *bench) wakes(woken <-chan struct{}, what string) {
	b.Helper()
	select {
	case <-woken:
	case <-time.After(soon):
		b.Fatalf("%s: no waiter was woken", what)
	}
}

func (b *bench) sleeps(woken <-chan struct{}, what string) {
	b.Helper()
	select {
	case <-woken:
		b.Errorf("%s: a waiter was woken", what)
	case <-time.After(100 * time.Millisecond):
	}
}

func wakesOnRelease(b *bench) {
	mine, theirs := b.store(), b.store()
	b.granted(mine, b.holding("a", "me:1", 1))
	b.granted(mine, b.holding("a", "me:1", 2))
	woken, sub := b.listen(theirs, "a")
	defer sub.Close()
	b.release(mine, b.holding("a", "me:1", 1), true)
	b.sleeps(woken, "a release that leaves a hold")
	b.release(mine, b.holding("a", "you:1", 0), false)
	b.sleeps(woken, "a release of what is not held")
	b.release(mine, b.holding("a", "me:1", 0), true)
	b.wakes(woken, "a release")
}

func wakesNoListenerAfterClose(b *bench) {
	s := b.store()
	woken, sub := b.listen(s, "a")
	still, other := b.listen(s, "a")
	defer other.Close()
	sub.Close()
	b.granted(s, b.hold("a", "me:1"))
	b.release(s, b.holding("a", "me:1", 0), true)
	b.wakes(still, "a release beside a closed subscription")
	b.sleeps(woken, "a release after the subscription was closed")
}

func wakesEachListener(b *bench) {
	s, other := b.store(), b.store()
	first, sub := b.listen(s, "a")
	defer sub.Close()
	second, sub := b.listen(s, "a")
	defer sub.Close()
	third, sub := b.listen(other, "a")
	defer sub.Close()
	unrelated, sub := b.listen(s, "b")
	defer sub.Close()
	b.granted(s, b.hold("a", "me:1"))
	b.release(s, b.holding("a", "me:1", 0), true)
	b.wakes(first, "the first listener")
	b.wakes(second, "the second listener")
	b.wakes(third, "the listener of another store")
	b.sleeps(unrelated, "a listener of another lock")
}

func subscribesManyLocks(b *bench) {
	const locks = 50
	s, other := b.store(), b.store()
	woken := make([]<-chan struct{}, locks)
	for i := range woken {
		var sub driver.Subscription
		woken[i], sub = b.listen(s, fmt.Sprintf("lock %d", i))
		defer sub.Close()
	}
	for i := range woken {
		name := fmt.Sprintf("lock %d", i)
		b.granted(other, b.hold(name, "me:1"))
		b.release(other, b.holding(name, "me:1", 0), true)
	}
	for i := range woken {
		b.wakes(woken[i], fmt.Sprintf("lock %d", i))
	}
}

// A confirmation of an earlier subscription must not be taken for that of a later one.
func subscribesAgainAndAgain(b *bench) {
	s, other := b.store(), b.store()
	for i := range 50 {
		woken, sub := b.listen(s, "a")
		owner := fmt.Sprintf("me:%d", i)
		b.granted(other, b.hold("a", owner))
		b.release(other, b.holding("a", owner, 0), true)
		b.wakes(woken, fmt.Sprintf("round %d", i))
		sub.Close()
	}
}

func keepsNamesApart(b *bench) {
	s := b.store()
	names := []string{
		"a", "A", "a b", "a:b", "a/b", `a\b`, "a*", "a?", "[a]", "'a'", `"a"`, "a%7Bb",
		"{a}:b", "a:timeout", "{a}:c", "b:{a}", "{a}{b}", "{a}:b:{", "straße", "锁", "🔒", "\u00a0",
		strings.Repeat("x", driver.MaxName-len(b.Prefix)),
		lock.EscapeName("lone { brace"), lock.EscapeName("}"), lock.EscapeName("new\nline"), lock.EscapeName("\xff\xfe"),
	}
	for i, name := range names {
		if err := driver.ValidateName(b.name(name)); err != nil {
			b.Fatal(err)
		}
		b.granted(s, b.hold(name, fmt.Sprintf("me:%d", i)))
	}
	for i, name := range names {
		b.refused(s, b.hold(name, "you:1"))
		b.release(s, b.holding(name, fmt.Sprintf("me:%d", i), 0), true)
	}
}

func namesItsKinds(b *bench) {
	s := b.store()
	for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite} {
		if err := s.Supports(kind); b.suite.keeps(kind) != (err == nil) || err != nil && !errors.Is(err, lock.ErrUnsupported) {
			b.Errorf("Supports(%v): %v", kind, err)
		}
	}
	if err := s.Supports(driver.Kind(255)); !errors.Is(err, lock.ErrUnsupported) {
		b.Errorf("Supports of no kind at all: got %v, want ErrUnsupported", err)
	}
}

// A request whose deadline is over fails as one without an answer, so that its caller
// reports the store as unavailable.
func heedsTheContext(b *bench) {
	s := b.store()
	b.granted(s, b.hold("warm up", "me:1"))
	ctx, cancel := context.WithDeadline(b.Context(), time.Now().Add(-time.Second))
	defer cancel()
	begin := time.Now()
	_, err := s.Acquire(ctx, b.hold("a", "me:1"))
	b.unavailable("acquire", err)
	_, err = s.Release(ctx, b.holding("a", "me:1", 0))
	b.unavailable("release", err)
	sub, err := s.Subscribe(ctx, b.hold("a", "me:1"), func(driver.Notice) {})
	b.unavailable("subscribe", err)
	if err == nil {
		sub.Close()
	}
	if took := time.Since(begin); took > b.hung() {
		b.Errorf("requests after their deadline took %v", took)
	}
}

// Package lock does not ask Supports: a lock of another kind would be held as a mutex.
func refusesOtherKinds(b *bench) {
	s := b.store()
	for kind := driver.KindMutex; kind <= driver.KindLatch; kind++ {
		if b.suite.keeps(kind) {
			continue
		}
		h := b.hold("other", "me:1")
		h.Kind, h.Semaphore.Permits = kind, 1
		if answer, err := s.Acquire(b.Context(), h); !errors.Is(err, lock.ErrUnsupported) {
			b.Errorf("acquire a %v: got %s, %v, want an error that matches ErrUnsupported, as of Supports", kind, word(answer.Verdict), err)
		}
	}
}

// unavailable checks the error of a request.
func (b *bench) unavailable(request string, err error) {
	b.Helper()
	if !errors.Is(err, driver.ErrUnavailable) {
		b.Errorf("%s after its deadline: %v, want an error that matches ErrUnavailable", request, err)
	}
}

// A request whose context ended more than a second ago grants nothing and frees nothing,
// now or later.
func changesNothingAfterTheDeadline(b *bench) {
	s := b.store()
	b.granted(s, b.hold("held", "me:1"))
	ctx, cancel := context.WithDeadline(b.Context(), time.Now().Add(-1100*time.Millisecond))
	defer cancel()
	for range 5 {
		if answer, err := s.Acquire(ctx, b.hold("free", "late:1")); err == nil && answer.Verdict == driver.Granted {
			b.Error("granted although the deadline was over")
		}
		_, _ = s.Acquire(ctx, b.holding("held", "me:1", 2))
		_, _ = s.Release(ctx, b.holding("held", "me:1", 0))
	}
	time.Sleep(100 * time.Millisecond) // a request that was sent nevertheless has arrived
	b.refused(s, b.hold("held", "you:1"))
	b.granted(s, b.hold("free", "you:1"))
	b.release(s, b.holding("held", "me:1", 0), true)
}

func acceptsAnAnnouncement(b *bench) {
	client := driver.Client{ID: "5e632d6f-aaed-4246-99f8-63ced21e0dcd", Host: "host", Process: "process", PID: 1, Since: time.Now()}
	for range 2 {
		if err := b.store().Announce(b.Context(), client, time.Hour); err != nil {
			b.Error(err)
		}
	}
}
