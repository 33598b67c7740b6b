package drivertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// inspectTests check the results of a store that is a driver.Inspector, and that it can
// force a lock open. For other stores they check the error.
var inspectTests = []test{
	{"ReportsHolders", inspecting(reportsHolders)},
	{"FreeLockHasNoHolders", inspecting(freeLockHasNoHolders)},
	{"ListsByPattern", inspecting(listsByPattern)},
	{"ListsWhatIsHeld", inspecting(listsWhatIsHeld)},
	{"StopsListing", inspecting(stopsListing)},
	{"RefusesToLookForNonsense", inspecting(refusesToLookForNonsense)},
	{"ForcesALockOpen", inspecting(forcesALockOpen)},
	{"ForcesEachKindOpen", inspecting(forcesEachKindOpen)},
	{"ForcesNothingOpen", inspecting(forcesNothingOpen)},
	{"LooksNoMoreOnceClosed", inspecting(looksNoMoreOnceClosed)},
}

// inspecting returns the test, or for a store that is no driver.Inspector the test of its
// error.
func inspecting(f func(*bench)) func(*bench) {
	return func(b *bench) {
		if _, ok := b.store().(driver.Inspector); ok {
			f(b)
			return
		}
		l := b.locker(lock.Config{})
		_, err := l.Inspect(b.Context(), b.name("a"), driver.KindMutex)
		_, err2 := l.ForceRelease(b.Context(), b.name("a"))
		_, err3 := b.list(l, "*")
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, lock.ErrUnsupported) {
				b.Errorf("the store is no driver.Inspector, and the locker returns %v", err)
			}
		}
	}
}

func (b *bench) inspect(l *lock.Locker, name string) driver.Info {
	b.Helper()
	info, err := l.Inspect(b.Context(), b.name(name), driver.KindMutex)
	if err != nil {
		b.Fatalf("inspect %q: %v", name, err)
	}
	if info.Name != b.name(name) {
		b.Fatalf("inspect %q: it is called %q", b.name(name), info.Name)
	}
	return info
}

// only returns the one holder of a lock.
func (b *bench) only(info driver.Info) driver.Holder {
	b.Helper()
	if info.HolderCount != 1 || len(info.Holders) != 1 {
		b.Fatalf("one holds it, got %+v", info)
	}
	return info.Holders[0]
}

// reported returns how many holds Inspect reports of an owner that has as many.
func (b *bench) reported(holds int64) int64 {
	if b.suite.Uncounted {
		return 1
	}
	return holds
}

// list returns the names of the test's locks that match pattern, in order, and the first
// error.
func (b *bench) list(l *lock.Locker, pattern string) (names []string, err error) {
	for info, err := range l.List(b.Context(), b.Prefix+pattern) {
		if err != nil {
			return names, err
		}
		names = append(names, info.Name[len(b.Prefix):])
	}
	slices.Sort(names)
	return names, nil
}

func (b *bench) lists(l *lock.Locker, pattern string, want ...string) {
	b.Helper()
	got, err := b.list(l, pattern)
	if err != nil || !slices.Equal(got, want) {
		b.Errorf("%q lists %q, %v, want %q", pattern, got, err, want)
	}
}

func reportsHolders(b *bench) {
	holder, other := b.locker(lock.Config{TTL: time.Minute, Label: "nightly “backup”"}), b.locker(lock.Config{})
	before := time.Now()
	lease := b.lock(holder, "a")
	again, err := holder.Mutex(b.name("a")).Lock(lease.Context())
	if err != nil {
		b.Fatal(err)
	}
	info := b.inspect(other, "a")
	h := b.only(info)
	switch {
	case info.Kind != driver.KindMutex || info.Foreign != "" || info.WaiterCount != 0 || info.Token != lease.Token():
		b.Errorf("got %+v, want a mutex with token %d and without waiters", info, lease.Token())
	case info.TTL <= 50*time.Second || info.TTL > time.Minute:
		b.Errorf("a lease of a minute has %v left", info.TTL)
	}
	if h.Owner != lease.Owner() || h.Holds != b.reported(2) || h.Write || h.Client.ID != holder.ClientID() {
		b.Errorf("got %+v, want %s, which holds it twice", h, lease.Owner())
	}
	// The client announces itself in the background after its first grant.
	for deadline := time.Now().Add(soon); h.Client.Host == "" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		h = b.only(b.inspect(other, "a"))
	}
	if h.Client.Host == "" || h.Client.Process == "" || h.Client.PID == 0 || h.Client.Label != "nightly “backup”" || h.Client.Since.After(time.Now()) {
		b.Errorf("the client's record is %+v", h.Client)
	}
	if !b.suite.Untokened && (h.Since.Before(before.Add(-soon)) || h.Since.After(before.Add(soon))) {
		b.Errorf("held since %v, want about %v", h.Since, before)
	}
	b.unlock(again)
	if h := b.only(b.inspect(other, "a")); h.Holds != 1 {
		b.Errorf("after one of two unlocks it is held %d times", h.Holds)
	}
	b.unlock(lease)
}

func freeLockHasNoHolders(b *bench) {
	l := b.locker(lock.Config{})
	if info := b.inspect(l, "a"); info.Held() || info.TTL != 0 || info.Foreign != "" || info.Holders != nil || info.Token != 0 {
		b.Errorf("of an unknown lock got %+v", info)
	}
	lease := b.lock(l, "a")
	b.unlock(lease)
	if info := b.inspect(l, "a"); info.Held() || info.Token != lease.Token() {
		b.Errorf("of a free lock got %+v, want token %d and no holder", info, lease.Token())
	}
}

func listsByPattern(b *bench) {
	l := b.locker(lock.Config{})
	for _, name := range []string{"a", "ab", "b", "jobs/1", "jobs/2/x", "{tag}:c", "what?", "star*", "back\\slash", "[set]", "straße"} {
		b.unlockAtEnd(b.lock(l, name))
	}
	b.lists(l, "*", "[set]", "a", "ab", "b", "back\\slash", "jobs/1", "jobs/2/x", "star*", "straße", "what?", "{tag}:c")
	b.lists(l, "a", "a")
	b.lists(l, "a*", "a", "ab")
	b.lists(l, "?", "a", "b")
	b.lists(l, "jobs/*", "jobs/1", "jobs/2/x")
	b.lists(l, "jobs/?", "jobs/1")
	b.lists(l, "*b", "ab", "b")
	b.lists(l, "[b-z]", "b")
	b.lists(l, "[^b-z]", "a")
	b.lists(l, "{tag}*", "{tag}:c")
	b.lists(l, `what\?`, "what?")
	b.lists(l, `star\**`, "star*")
	b.lists(l, `back\\*`, "back\\slash")
	b.lists(l, `\[set]`, "[set]")
	b.lists(l, "stra?e", "straße")
	b.lists(l, "nothing*")
	b.lists(l, "nothing")
}

// unlockAtEnd keeps a lock until the test ends.
func (b *bench) unlockAtEnd(lease *lock.Lease) {
	b.Cleanup(func() {
		if err := lease.Unlock(context.Background()); err != nil {
			b.Errorf("unlock: %v", err)
		}
	})
}

func listsWhatIsHeld(b *bench) {
	l := b.locker(lock.Config{})
	b.lists(l, "*")
	first, second := b.lock(l, "a"), b.lock(l, "b")
	for info, err := range l.List(b.Context(), b.Prefix+"*") {
		if err != nil || len(info.Holders) != 1 || !b.follows(info.Token, 0) || info.TTL <= 0 {
			b.Errorf("got %+v, %v, want the result of Inspect", info, err)
		}
	}
	b.unlock(first)
	b.lists(l, "*", "b")
	b.unlock(second)
	b.lists(l, "*")
}

func stopsListing(b *bench) {
	l := b.locker(lock.Config{})
	for _, name := range []string{"a", "b", "c", "d"} {
		b.unlockAtEnd(b.lock(l, name))
	}
	locks := l.List(b.Context(), b.Prefix+"*")
	for range 2 { // an iterator begins anew
		listed := 0
		for _, err := range locks {
			if err != nil {
				b.Fatal(err)
			}
			if listed++; listed == 2 {
				break
			}
		}
		if listed != 2 {
			b.Errorf("of four locks %d were listed before the loop ended", listed)
		}
	}
	ended, cancel := context.WithCancel(b.Context())
	cancel()
	errs := 0
	for _, err := range l.List(ended, b.Prefix+"*") {
		if err == nil {
			b.Error("a lock was listed after the context's end")
		}
		errs++
	}
	if errs != 1 {
		b.Errorf("the context's end was reported %d times", errs)
	}
}

func refusesToLookForNonsense(b *bench) {
	l := b.locker(lock.Config{})
	var name *lock.NameError
	if _, err := l.Inspect(b.Context(), "a{b", driver.KindMutex); !errors.As(err, &name) {
		b.Errorf("inspect: %v", err)
	}
	if _, err := l.ForceRelease(b.Context(), ""); !errors.As(err, &name) {
		b.Errorf("force: %v", err)
	}
	for _, malformed := range []string{"[a", "a[", "[z-a]x[", `a\`} {
		var pattern *lock.NameError
		if _, err := b.list(l, malformed); !errors.As(err, &pattern) {
			b.Errorf("list %q: %v", malformed, err)
		}
	}
}

func forcesALockOpen(b *bench) {
	longTTL := 10 * ttl // at its end the waiter would ask without a message
	victim := b.locker(lock.Config{TTL: longTTL})
	waiting := b.locker(lock.Config{TTL: time.Hour, Poll: time.Hour})
	rescuer := b.locker(lock.Config{})
	lease := b.lock(victim, "a")
	further, err := victim.Mutex(b.name("a")).Lock(lease.Context())
	if err != nil {
		b.Fatal(err)
	}
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease { return b.lock(waiting, "a") })
	time.Sleep(ttl / 2) // it has subscribed, or this is a harder test
	begin := time.Now()
	info, err := rescuer.ForceRelease(b.Context(), b.name("a"))
	if err != nil || len(info.Holders) != 1 || info.Holders[0].Owner != lease.Owner() || info.Holders[0].Holds != b.reported(2) ||
		info.Token != lease.Token() {
		b.Fatalf("got %+v, %v, want that the lock was taken from %s", info, err, lease.Owner())
	}
	next := b.received(got)
	if waited := time.Since(begin); waited > longTTL/2 {
		b.Errorf("the waiter was woken after %v", waited)
	}
	if !b.follows(next.Token(), lease.Token()) {
		b.Errorf("token %d came after %d", next.Token(), lease.Token())
	}
	_ = b.lost(lease, longTTL/2)
	if info := b.inspect(rescuer, "a"); len(info.Holders) != 1 || info.Holders[0].Owner != next.Owner() {
		b.Errorf("got %+v, want that %s holds the lock", info, next.Owner())
	}
	for _, lease := range []*lock.Lease{further, lease} { // the victim releases what it no longer owns
		if err := lease.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
			b.Errorf("the victim's unlock: %v", err)
		}
	}
	if err := next.Err(); err != nil {
		b.Errorf("the victim's unlock ended the next one's lease: %v", err)
	}
	b.unlock(next)
}

// A forced release wakes the waiters for that kind of lock, and every holder, on either
// side, loses it.
func forcesEachKindOpen(b *bench) {
	longTTL := 10 * ttl // at its end waiters would ask without a message
	victim := b.locker(lock.Config{TTL: longTTL})
	waiting := b.locker(lock.Config{TTL: time.Hour, Poll: time.Hour})
	rescuer := b.locker(lock.Config{})
	type take func(context.Context) (*lock.Lease, error)
	for _, kind := range []struct {
		kind          driver.Kind
		name          string
		holders, next []take
	}{
		{driver.KindFair, "fair", []take{victim.Fair(b.name("fair")).Lock}, []take{waiting.Fair(b.name("fair")).Lock}},
		{
			driver.KindRead, "read", slices.Repeat([]take{victim.ReadWrite(b.name("read")).Read().Lock}, 5),
			[]take{waiting.ReadWrite(b.name("read")).Write().Lock},
		},
		{
			driver.KindWrite, "write", []take{victim.ReadWrite(b.name("write")).Write().Lock},
			[]take{waiting.ReadWrite(b.name("write")).Read().Lock, b.locker(lock.Config{Poll: time.Hour}).ReadWrite(b.name("write")).Read().Lock},
		},
	} {
		if !b.suite.keeps(kind.kind) {
			continue
		}
		var held []*lock.Lease
		for _, take := range kind.holders {
			lease, err := take(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			held = append(held, lease)
		}
		got := make(chan *lock.Lease)
		for _, take := range kind.next {
			go func() {
				lease, err := take(b.Context())
				if err != nil {
					b.Errorf("waiting for the %v: %v", kind.kind, err)
				}
				got <- lease
			}()
		}
		time.Sleep(ttl / 2) // they have subscribed, or this is a harder test
		if kind.kind == driver.KindFair {
			b.queueBecomes(rescuer, kind.name, 1)
		}
		info := b.inspect(rescuer, kind.name)
		byName := func(x, y driver.Holder) int { return strings.Compare(x.Owner, y.Owner) }
		if info.Kind != kind.kind || info.HolderCount != int64(len(held)) || len(info.Holders) != len(held) || !slices.IsSortedFunc(info.Holders, byName) {
			b.Errorf("of the %v got %+v", kind.kind, info)
		}
		for _, h := range info.Holders {
			if h.Holds != 1 || h.Write != (kind.kind == driver.KindWrite) || h.TTL <= 0 || h.TTL > longTTL {
				b.Errorf("of a holder of the %v got %+v", kind.kind, h)
			}
		}
		if kind.kind == driver.KindFair && (info.WaiterCount != 1 || len(info.Waiters) != 1 || info.Waiters[0].Client.ID != waiting.ClientID()) {
			b.Errorf("of the queue got %+v", info.Waiters)
		}
		begin := time.Now()
		if was, err := rescuer.ForceRelease(b.Context(), b.name(kind.name)); err != nil || len(was.Holders) != len(held) {
			b.Errorf("forced the %v open: %+v, %v", kind.kind, was, err)
		}
		for range kind.next {
			next := <-got
			if waited := time.Since(begin); waited > longTTL/2 || next == nil {
				b.Fatalf("those who wait for the %v were woken after %v", kind.kind, waited)
			}
			b.unlockAtEnd(next)
		}
		for _, lease := range held {
			_ = b.lost(lease, longTTL/2)
		}
	}
}

func forcesNothingOpen(b *bench) {
	l := b.locker(lock.Config{})
	info, err := l.ForceRelease(b.Context(), b.name("a"))
	if err != nil || info.Held() {
		b.Errorf("of a free lock got %+v, %v", info, err)
	}
	b.unlock(b.lock(l, "a"))
}

func looksNoMoreOnceClosed(b *bench) {
	l, err := lock.New(b.store(), lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	_, err = l.Inspect(b.Context(), b.name("a"), driver.KindMutex)
	_, err2 := l.ForceRelease(b.Context(), b.name("a"))
	_, err3 := b.list(l, "*")
	for _, err := range []error{err, err2, err3} {
		if !errors.Is(err, lock.ErrClosed) {
			b.Errorf("a closed locker returns %v", err)
		}
	}
}

// inspection inspects one name.
type inspection func(context.Context) (driver.Info, error)

func (b *bench) inspection(l *lock.Locker, name string, kind driver.Kind) inspection {
	return func(ctx context.Context) (driver.Info, error) { return l.Inspect(ctx, b.name(name), kind) }
}

func (b *bench) ask(inspect inspection) driver.Info {
	b.Helper()
	info, err := inspect(b.Context())
	if err != nil {
		b.Fatalf("inspect: %v", err)
	}
	return info
}

// awaited waits until Inspect reports a waiter.
func (b *bench) awaited(inspect inspection) {
	b.Helper()
	for deadline := time.Now().Add(soon); b.ask(inspect).WaiterCount != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.Fatalf("one waits, got %+v", b.ask(inspect))
		}
	}
}

// counted checks the info of a name that has a count.
func (b *bench) counted(info driver.Info, kind driver.Kind, count, holders int64) {
	b.Helper()
	if info.Kind != kind || !info.Counted || info.Count != count || info.HolderCount != holders ||
		int64(len(info.Holders)) != holders || info.Foreign != "" {
		b.Errorf("got %+v, want a %v whose count is %d, held by %d", info, kind, count, holders)
	}
}

// foreign checks the info of a name that has a value of another kind.
func (b *bench) foreign(info driver.Info) {
	b.Helper()
	if info.Foreign == "" || info.Held() {
		b.Errorf("the name has a foreign value, got %+v", info)
	}
}

func reportsASemaphoresCount(b *bench) {
	l := b.locker(lock.Config{})
	s := l.Semaphore(b.name("a"))
	inspect := b.inspection(l, "a", driver.KindSemaphore)
	if info := b.ask(inspect); info.Counted || info.Held() || info.Foreign != "" {
		b.Errorf("of a semaphore without permits got %+v", info)
	}
	if _, err := s.TrySetPermits(b.Context(), 3); err != nil {
		b.Fatal(err)
	}
	if err := s.Acquire(b.Context(), 2); err != nil {
		b.Fatal(err)
	}
	b.counted(b.ask(inspect), driver.KindSemaphore, 1, 0)
	served := make(chan error, 1)
	go func() { served <- b.locker(lock.Config{}).Semaphore(b.name("a")).Acquire(b.Context(), 2) }()
	b.awaited(inspect)
	if err := s.Release(b.Context(), 2); err != nil {
		b.Fatal(err)
	}
	if err := <-served; err != nil {
		b.Fatal(err)
	}
	b.counted(b.ask(inspect), driver.KindSemaphore, 1, 0)

	// An inspection without the kind finds a number, which is no lock.
	if info := b.inspect(l, "a"); info.Foreign == "" || !info.Counted || info.Count != 1 {
		b.Errorf("of a number got %+v", info)
	}
	b.lists(l, "*")
	if info, err := l.ForceRelease(b.Context(), b.name("a")); err != nil || info.Held() || info.Foreign == "" {
		b.Errorf("a semaphore was forced: %+v, %v", info, err)
	}
	b.counted(b.ask(inspect), driver.KindSemaphore, 1, 0)

	b.unlockAtEnd(b.lock(l, "mutex"))
	b.foreign(b.ask(b.inspection(l, "mutex", driver.KindSemaphore)))
	b.foreign(b.ask(b.inspection(l, "mutex", driver.KindPermit)))
	b.foreign(b.ask(b.inspection(l, "mutex", driver.KindLatch)))
}

func reportsPermitsInUse(b *bench) {
	l := b.locker(lock.Config{TTL: time.Minute})
	p := l.Permits(b.name("a"))
	inspect := b.inspection(l, "a", driver.KindPermit)
	if _, err := p.TrySetPermits(b.Context(), 2); err != nil {
		b.Fatal(err)
	}
	b.counted(b.ask(inspect), driver.KindPermit, 2, 0)
	b.lists(l, "*")
	lease, err := p.One().Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	info := b.ask(inspect)
	b.counted(info, driver.KindPermit, 1, 1)
	if h := b.only(info); h.Owner != lease.Owner() || h.Holds != 1 || h.TTL <= 50*time.Second || h.TTL > time.Minute || !h.Since.IsZero() {
		b.Errorf("of permit %s got %+v", lease.Owner(), h)
	}
	client := info.Holders[0].Client // announced after the grant
	for deadline := time.Now().Add(soon); client.Host == "" && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		client = b.only(b.ask(inspect)).Client
	}
	if client.ID != l.ClientID() || client.Host == "" {
		b.Errorf("permit %s has the client %+v, want %s", lease.Owner(), client, l.ClientID())
	}
	if info.TTL <= 50*time.Second || info.TTL > time.Minute || info.Token != lease.Token() {
		b.Errorf("got %+v, want the rest of a minute and token %d", info, lease.Token())
	}
	b.counted(b.inspect(l, "a"), driver.KindPermit, 1, 1) // without the kind
	b.lists(l, "*", "a")

	// An expired permit comes back, even before another request for it.
	brief, err := p.One().With(lock.Options{Fixed: true, TTL: 2 * ttl}).Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if info := b.ask(inspect); brief.Valid() {
		b.counted(info, driver.KindPermit, 0, 2)
	}
	time.Sleep(time.Until(brief.Until()))
	for deadline := time.Now().Add(soon); b.ask(inspect).Count == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	b.counted(b.ask(inspect), driver.KindPermit, 1, 1)

	second, err := p.One().Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan *lock.Lease, 1)
	go func() {
		lease, err := b.locker(lock.Config{}).Permits(b.name("a")).One().Lock(b.Context())
		if err != nil {
			b.Error(err)
		}
		served <- lease
	}()
	b.awaited(inspect)
	if info, err := l.ForceRelease(b.Context(), b.name("a")); err != nil || info.Foreign == "" {
		b.Errorf("permits were forced: %+v, %v", info, err)
	}
	b.unlock(lease)
	b.unlock(<-served)
	b.unlock(second)
	b.counted(b.ask(inspect), driver.KindPermit, 2, 0)
	b.lists(l, "*")
}

// The number is deleted as a latch: both are one number under the name.
func reportsPermitsThatOutliveTheirNumber(b *bench) {
	l := b.locker(lock.Config{TTL: time.Minute})
	p := l.Permits(b.name("a"))
	if _, err := p.TrySetPermits(b.Context(), 2); err != nil {
		b.Fatal(err)
	}
	lease, err := p.One().Lock(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if deleted, err := l.Latch(b.name("a")).Delete(b.Context()); err != nil || !deleted {
		b.Fatalf("got %v, %v", deleted, err)
	}
	for _, kind := range []driver.Kind{driver.KindPermit, driver.KindMutex} {
		info := b.ask(b.inspection(l, "a", kind))
		if info.Kind != driver.KindPermit || info.Counted || info.Count != 0 || info.TTL <= 50*time.Second {
			b.Errorf("as a %v got %+v, want a permit without a number", kind, info)
		}
		if h := b.only(info); h.Owner != lease.Owner() {
			b.Errorf("as a %v got %+v, want %s", kind, h, lease.Owner())
		}
	}
	b.lists(l, "*", "a")
	b.unlock(lease)
	b.lists(l, "*")
}

func reportsALatchsCount(b *bench) {
	l := b.locker(lock.Config{})
	latch := l.Latch(b.name("a"))
	inspect := b.inspection(l, "a", driver.KindLatch)
	if info := b.ask(inspect); info.Counted || info.Foreign != "" {
		b.Errorf("of an open latch got %+v", info)
	}
	if _, err := latch.TrySetCount(b.Context(), 2); err != nil {
		b.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() { opened <- b.locker(lock.Config{}).Latch(b.name("a")).Wait(b.Context()) }()
	b.awaited(inspect)
	b.counted(b.ask(inspect), driver.KindLatch, 2, 0)
	for range 2 {
		if err := latch.CountDown(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-opened; err != nil {
		b.Fatal(err)
	}
	if info := b.ask(inspect); info.Counted {
		b.Errorf("of a latch that was opened got %+v", info)
	}
}
