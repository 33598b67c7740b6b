package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// writeTests check the write side alone, as a mutex.
var writeTests = slices.Concat(storeTests, without(mutexTests, "PassesOnWithinAProcess", "KeepsALockForItsMinHold"))

// readWriteTests check readers together with writers.
var readWriteTests = []test{
	{"SharesAmongReaders", sharesAmongReaders},
	{"CountsAReadersHolds", countsAReadersHolds},
	{"RefusesFurtherReadsOfNone", refusesFurtherReadsOfNone},
	{"ReleasesTheReaderOnly", releasesTheReaderOnly},
	{"KeepsEachReaderForItsOwnTTL", keepsEachReaderForItsOwnTTL},
	{"DropsDeadReaders", dropsDeadReaders},
	{"ForgetsAFormerReadersTTL", forgetsAFormerReadersTTL},
	{"ReadsUnderItsOwnWrite", readsUnderItsOwnWrite},
	{"ReadsAfterItsOwnWrite", readsAfterItsOwnWrite},
	{"LeavesMutexesAlone", leavesMutexesAlone},
	{"RenewsEachKindByItself", renewsEachKindByItself},
	{"RenewsNoDeadReader", renewsNoDeadReader},
	{"WakesWhereReadersEnd", wakesWhereReadersEnd},
	{"KeepsNewReadersOut", keepsNewReadersOut},
	{"DeadWritersKeepNoReaderOut", deadWritersKeepNoReaderOut},

	{"ReadsTogether", readsTogether},
	{"LetsAllWaitingReadersIn", letsAllWaitingReadersIn},
	{"IsReentrantByContext", readsReentrantly},
	{"Downgrades", downgrades},
	{"DowngradesPastWaitingReaders", downgradesPastWaitingReaders},
	{"RefusesToUpgrade", refusesToUpgrade},
	{"KeepsReadersAlive", keepsReadersAlive},
	{"LetsFixedReadersEnd", letsFixedReadersEnd},
	{"LetsAFixedWriterEnd", letsAFixedWriterEnd},
	{"OutlivesDeadReaders", outlivesDeadReaders},
	{"ReportsDeletionToReaders", reportsDeletionToReaders},
	{"ReportsAWriterToReaders", reportsAWriterToReaders},
	{"NeverReadsBesideAWriter", neverReadsBesideAWriter},
	{"LeavesNoReaderWhenCancelled", leavesNoReaderWhenCancelled},
	{"PutsWritersFirst", putsWritersFirst},
	{"ServesWritersAmongManyReaders", servesWritersAmongManyReaders},
}

// reading returns the request that sets a reader's holds to count. They do not end by themselves
// while the test runs.
func (b *bench) reading(name, owner string, count int64) *driver.Hold {
	return &driver.Hold{Kind: driver.KindRead, Name: b.name(name), Owner: named(owner), Count: count, TTL: hour}
}

// writing returns the request that sets a writer's holds to count, as reading does a reader's.
func (b *bench) writing(name, owner string, count int64) *driver.Hold {
	return &driver.Hold{Kind: driver.KindWrite, Name: b.name(name), Owner: named(owner), Count: count, TTL: hour}
}

// lasting returns the request with another TTL.
func lasting(h *driver.Hold, ttl time.Duration) *driver.Hold {
	h.TTL = ttl
	return h
}

// under returns a reader's request beside a write lock of the same holder.
func under(h *driver.Hold, writer string) *driver.Hold {
	h.ReadWrite.Under = named(writer)
	return h
}

// claiming returns a writer's request that blocks new readers while the test runs.
func claiming(h *driver.Hold) *driver.Hold { return claimingFor(h, hour) }

// claimingFor returns a writer's request that blocks new readers for a while.
func claimingFor(h *driver.Hold, d time.Duration) *driver.Hold {
	h.ReadWrite.BlockReaders = d
	return h
}

func sharesAmongReaders(b *bench) {
	mine, theirs := b.store(), b.store()
	first := b.granted(mine, b.reading("a", "me:1", 1))
	second := b.granted(theirs, b.reading("a", "you:1", 1))
	if first.Token <= 0 || first.Token != second.Token {
		b.Errorf("readers at the same time have tokens %d and %d", first.Token, second.Token)
	}
	answer := b.refused(theirs, b.writing("a", "you:2", 1))
	if answer.Wait <= 0 || answer.Wait > hour || answer.Foreign {
		b.Errorf("a writer was refused with %+v; the readers have %v at most", answer, hour)
	}
	b.release(mine, b.reading("a", "me:1", 0), true)
	b.refused(mine, b.writing("a", "me:2", 1))
	b.release(theirs, b.reading("a", "you:1", 0), true)
	writer := b.granted(theirs, b.writing("a", "you:2", 1))
	if writer.Token <= first.Token {
		b.Errorf("a writer's token %d came after the readers' %d", writer.Token, first.Token)
	}
	answer = b.refused(mine, b.reading("a", "me:1", 1))
	if answer.Wait <= 0 || answer.Wait > hour || answer.Foreign {
		b.Errorf("a reader was refused with %+v; the writer has %v at most", answer, hour)
	}
	b.refused(mine, b.writing("a", "me:2", 1))
	b.release(theirs, b.writing("a", "you:2", 0), true)
	last := writer.Token
	for _, owner := range []string{"me:1", "me:3"} {
		next := b.granted(mine, b.reading("a", owner, 1))
		if next.Token <= last {
			b.Errorf("a reader's token %d came after %d", next.Token, last)
		}
		last = next.Token
		b.release(mine, b.reading("a", owner, 0), true)
	}
}

// A request that is sent twice counts once.
func countsAReadersHolds(b *bench) {
	s := b.store()
	first := b.granted(s, b.reading("a", "me:1", 1))
	for _, count := range []int64{1, 2, 2, 3, 3} {
		if further := b.granted(s, b.reading("a", "me:1", count)); further.Token != first.Token {
			b.Errorf("hold %d came with token %d instead of %d", count, further.Token, first.Token)
		}
	}
	for _, count := range []int64{2, 2, 1, 1} {
		b.release(s, b.reading("a", "me:1", count), true)
		b.refused(s, b.writing("a", "you:1", 1))
	}
	b.release(s, b.reading("a", "me:1", 0), true)
	b.granted(s, b.writing("a", "you:1", 1))
}

func refusesFurtherReadsOfNone(b *bench) {
	s := b.store()
	none := func(when string) {
		b.Helper()
		if answer := b.acquire(s, b.reading("a", "me:1", 2)); answer.Verdict != driver.NotHeld {
			b.Errorf("a further hold %s: got %+v, want NotHeld", when, answer)
		}
	}
	none("of a free lock")
	b.granted(s, b.writing("a", "you:1", 1))
	none("of a writer's lock")
	b.release(s, b.writing("a", "you:1", 0), true)
	b.granted(s, b.reading("a", "you:2", 1))
	none("of other readers' lock")
	b.granted(s, lasting(b.reading("a", "me:1", 1), ttl))
	time.Sleep(b.over(ttl))
	none("of a lock that only others hold still")
	b.granted(s, b.reading("a", "me:2", 1))
	b.refused(s, claiming(b.writing("a", "you:1", 1)))
	b.refused(s, b.reading("a", "me:1", 1)) // it is a new reader
}

func releasesTheReaderOnly(b *bench) {
	s := b.store()
	b.release(s, b.reading("a", "me:1", 0), false)
	b.granted(s, b.reading("a", "me:1", 1))
	b.release(s, b.reading("a", "you:1", 0), false)
	b.release(s, b.reading("a", "you:1", 1), false)
	b.release(s, b.writing("a", "me:1", 0), false)
	b.refused(s, b.writing("a", "you:1", 1))
	b.release(s, b.reading("a", "me:1", 0), true)
	b.release(s, b.reading("a", "me:1", 0), false)
	b.release(s, b.reading("a", "me:1", 1), false)
	b.granted(s, b.writing("a", "you:1", 1))
	b.release(s, b.reading("a", "you:1", 0), false)
	b.release(s, b.writing("a", "you:1", 0), true)
}

// A reader's lease is neither shortened by another's, shorter one nor extended by a longer
// one. A writer's refusal has the end of the first: the other may be released before.
func keepsEachReaderForItsOwnTTL(b *bench) {
	s := b.store()
	ways := map[string]func(*driver.Hold){
		"granted": func(h *driver.Hold) { b.granted(s, h) },
		"renewed": func(h *driver.Hold) { b.renew(s, renewals(h), renewal.Renewed) },
		"lowered": func(h *driver.Hold) { b.release(s, h, true) },
	}
	for way, request := range ways {
		if way != "renewed" { // a renewal may give less
			b.granted(s, lasting(b.reading(way+" longer", "me:1", 1), 2*ttl))
			request(b.reading(way+" longer", "me:1", 1))
		}
		b.granted(s, b.reading(way+" shorter", "long:1", 1))
		b.granted(s, b.reading(way+" shorter", "short:1", 1))
		request(lasting(b.reading(way+" shorter", "short:1", 1), ttl))
	}
	b.granted(s, b.reading("a", "long:1", 1))
	b.granted(s, lasting(b.reading("a", "short:1", 1), ttl))
	if left := b.refused(s, b.writing("a", "you:1", 1)).Wait; left <= 0 || left > ttl {
		b.Errorf("the first lease ends in %v, though a reader has it for %v", left, ttl)
	}
	time.Sleep(b.over(2 * ttl))
	b.refused(s, b.writing("a", "you:1", 1))
	for way := range ways {
		b.release(s, b.reading(way+" longer", "me:1", 0), way != "renewed")
		b.release(s, b.reading(way+" shorter", "short:1", 0), false)
		b.release(s, b.reading(way+" shorter", "long:1", 0), true)
		b.granted(s, b.writing(way+" shorter", "you:1", 1))
	}
}

func dropsDeadReaders(b *bench) {
	s := b.store()
	for i := range 20 {
		b.granted(s, lasting(b.reading("a", fmt.Sprintf("dead:%d", i), 1), ttl))
	}
	b.granted(s, b.reading("a", "alive:1", 1))
	time.Sleep(b.over(ttl))
	b.refused(s, b.writing("a", "you:1", 1))
	woken, sub := b.listen(s, "a")
	defer sub.Close()
	b.release(s, b.reading("a", "alive:1", 0), true)
	b.wakes(woken, "the release of the last reader that lives")
	b.granted(s, b.writing("a", "you:1", 1))
	b.release(s, b.reading("a", "dead:1", 0), false)
	b.release(s, b.writing("a", "you:1", 0), true)
}

// The TTL of a former holder is no longer the lock's, which ends with the last reader: another one
// then shares no token with it.
func forgetsAFormerReadersTTL(b *bench) {
	ttl := 2 * ttl // which a few requests on a busy machine do not take
	s := b.store()
	b.granted(s, b.reading("a", "me:1", 1))
	b.granted(s, lasting(b.reading("a", "dead:1", 1), ttl))
	b.release(s, b.reading("a", "me:1", 0), true)
	if left := b.refused(s, b.writing("a", "you:1", 1)).Wait; left <= 0 || left > ttl {
		b.Errorf("the lock lasts %v, though the last reader has it for %v", left, ttl)
	}
	former := map[string]int64{
		"reader": b.granted(s, b.reading("reader", "me:1", 1)).Token,
		"writer": b.granted(s, b.writing("writer", "me:1", 1)).Token,
	}
	for name := range former {
		b.granted(s, under(lasting(b.reading(name, "dead:1", 1), ttl), "me:1"))
	}
	b.release(s, b.reading("reader", "me:1", 0), true)
	b.release(s, b.writing("writer", "me:1", 0), true)
	time.Sleep(b.over(ttl))
	for name, token := range former {
		if next := b.granted(s, b.reading(name, "next:1", 1)); next.Token <= token {
			b.Errorf("token %d came after that of a former %s, %d", next.Token, name, token)
		}
	}
	b.granted(s, b.writing("a", "you:1", 1))
	b.granted(s, under(lasting(b.reading("a", "dead:2", 1), ttl), "you:1"))
	b.release(s, b.writing("a", "you:1", 0), true)
	b.refused(s, b.writing("a", "you:2", 1))
	time.Sleep(b.over(ttl))
	b.granted(s, b.writing("a", "you:2", 1))
}

func readsUnderItsOwnWrite(b *bench) {
	mine, theirs := b.store(), b.store()
	w := b.granted(mine, b.writing("a", "me:1", 1))
	b.refused(mine, b.reading("a", "me:2", 1))
	b.refused(mine, under(b.reading("a", "me:2", 1), "me:3"))
	r := b.granted(mine, under(b.reading("a", "me:2", 1), "me:1"))
	if r.Token != w.Token {
		b.Errorf("a writer with token %d reads with %d", w.Token, r.Token)
	}
	b.granted(mine, under(b.reading("a", "me:3", 1), "me:1"))
	b.granted(mine, b.reading("a", "me:2", 2))
	b.refused(theirs, b.reading("a", "you:1", 1))
	b.refused(theirs, b.writing("a", "you:1", 1))
	b.release(mine, b.reading("a", "me:2", 0), true)
	b.release(mine, b.reading("a", "me:3", 0), true)
	b.refused(theirs, b.reading("a", "you:1", 1))
	b.release(mine, b.writing("a", "me:1", 0), true)
	b.granted(theirs, b.writing("a", "you:1", 1))
}

func readsAfterItsOwnWrite(b *bench) {
	mine, theirs := b.store(), b.store()
	w := b.granted(mine, b.writing("a", "me:1", 1))
	b.granted(mine, b.writing("a", "me:1", 2))
	b.granted(mine, under(b.reading("a", "me:2", 1), "me:1"))
	woken, sub := b.listen(theirs, "a")
	defer sub.Close()
	b.release(mine, b.writing("a", "me:1", 1), true)
	b.refused(theirs, b.reading("a", "you:1", 1))
	b.sleeps(woken, "a release that leaves a hold")
	b.release(mine, b.writing("a", "me:1", 0), true)
	b.wakes(woken, "a writer that goes on as a reader")
	b.release(mine, b.writing("a", "me:1", 0), false)
	b.refused(theirs, b.writing("a", "you:1", 1))
	if r := b.granted(theirs, b.reading("a", "you:1", 1)); r.Token != w.Token {
		b.Errorf("beside a former writer's token %d a reader has %d", w.Token, r.Token)
	}
	b.granted(mine, under(b.reading("a", "me:4", 1), "me:1")) // sent before it was a former writer
	b.release(mine, b.reading("a", "me:4", 0), true)
	b.release(mine, b.reading("a", "me:2", 0), true)
	b.refused(mine, b.writing("a", "me:3", 1))
	b.release(theirs, b.reading("a", "you:1", 0), true)
	b.granted(mine, b.writing("a", "me:3", 1))
}

// Read-write locks share no names with mutexes.
func leavesMutexesAlone(b *bench) {
	s := b.store()
	mutex := func(owner string, count int64) *driver.Hold {
		return &driver.Hold{Kind: driver.KindMutex, Name: b.name("a"), Owner: named(owner), Count: count, TTL: hour}
	}
	b.granted(s, mutex("me:1", 1))
	for _, h := range []*driver.Hold{b.reading("a", "you:1", 1), b.writing("a", "you:1", 1)} {
		if answer := b.refused(s, h); !answer.Foreign && !answer.OtherKind {
			b.Errorf("the %v of a mutex was refused by %+v", h.Kind, answer)
		}
		b.renew(s, renewals(h), renewal.Taken)
		b.release(s, back(h), false)
	}
	b.release(s, mutex("me:1", 0), true)
	for _, h := range []*driver.Hold{b.reading("a", "you:1", 1), b.writing("a", "you:1", 1)} {
		b.granted(s, h)
		b.refused(s, mutex("me:2", 1))
		b.renew(s, renewals(mutex("me:2", 1)), renewal.Taken)
		b.release(s, mutex("me:2", 0), false)
		b.release(s, back(h), true)
	}
	b.granted(s, mutex("me:3", 1))
}

func renewsEachKindByItself(b *bench) {
	ttl := 3 * ttl // which the requests before the renewal do not take on a busy machine
	s := b.store()
	mutex := &driver.Hold{Kind: driver.KindMutex, Name: b.name("mutex"), Owner: named("me:1"), Count: 1}
	twice := b.reading("read", "me:2", 2)
	holds := []*driver.Hold{
		mutex, b.reading("read", "me:1", 1), b.writing("write", "me:1", 1), twice, b.writing("both", "me:1", 1),
	}
	b.granted(s, lasting(b.reading("read", "me:2", 1), ttl))
	for _, h := range holds {
		b.granted(s, lasting(h, ttl))
	}
	beside := under(lasting(b.reading("both", "me:2", 1), ttl), "me:1")
	b.granted(s, beside)
	b.granted(s, lasting(b.writing("theirs", "you:1", 1), ttl))
	for _, h := range append(holds, beside) {
		lasting(h, hour)
	}
	items := renewals(append(holds, beside,
		b.reading("nobody's", "me:1", 1), b.writing("nobody's", "me:1", 1),
		b.reading("theirs", "me:1", 1), b.writing("theirs", "me:1", 1),
		b.reading("read", "me:3", 1), b.writing("read", "me:1", 1))...)
	b.renew(s, items,
		renewal.Renewed, renewal.Renewed, renewal.Renewed, renewal.Renewed, renewal.Renewed, renewal.Renewed,
		renewal.Gone, renewal.Gone, renewal.Taken, renewal.Taken, renewal.Gone, renewal.Taken)
	time.Sleep(b.over(ttl))
	for _, name := range []string{"read", "write", "both"} {
		b.refused(s, b.writing(name, "you:1", 1))
	}
	b.granted(s, b.writing("theirs", "you:2", 1)) // a refused renewal extends nothing
	b.release(s, b.writing("both", "me:1", 0), true)
	b.release(s, b.reading("both", "me:2", 0), true)
	b.release(s, b.reading("read", "me:1", 0), true)
	b.release(s, b.reading("read", "me:2", 1), true) // each of its holds was extended
	b.refused(s, b.writing("read", "you:1", 1))
	b.release(s, b.reading("read", "me:2", 0), true)
	b.granted(s, b.writing("read", "you:1", 1))
}

func renewsNoDeadReader(b *bench) {
	s := b.store()
	dead, alive := lasting(b.reading("a", "dead:1", 1), ttl), lasting(b.reading("a", "alive:1", 1), 4*ttl)
	b.granted(s, dead)
	b.granted(s, alive)
	items := renewals(alive)
	for range 4 {
		time.Sleep(ttl / 2)
		b.renew(s, items, renewal.Renewed)
	}
	b.renew(s, renewals(dead), renewal.Gone)
	b.release(s, b.reading("a", "dead:1", 0), false)
	b.release(s, b.reading("a", "alive:1", 0), true)
	b.granted(s, b.writing("a", "you:1", 1))
	b.renew(s, items, renewal.Taken)
}

func wakesWhereReadersEnd(b *bench) {
	mine, theirs := b.store(), b.store()
	b.granted(mine, b.reading("a", "me:1", 1))
	b.granted(mine, b.reading("a", "me:1", 2))
	b.granted(mine, b.reading("a", "me:2", 1))
	woken, sub := b.listen(theirs, "a")
	defer sub.Close()
	b.release(mine, b.reading("a", "me:1", 1), true)
	b.release(mine, b.reading("a", "me:1", 0), true)
	b.release(mine, b.reading("a", "you:1", 0), false)
	b.sleeps(woken, "a release that leaves a reader")
	b.release(mine, b.reading("a", "me:2", 0), true)
	b.wakes(woken, "the last reader's release")
	b.granted(mine, b.writing("a", "me:1", 1))
	b.release(mine, b.writing("a", "me:1", 0), true)
	b.wakes(woken, "the writer's release")
}

func keepsNewReadersOut(b *bench) {
	mine, theirs := b.store(), b.store()
	b.granted(mine, b.reading("a", "me:1", 1))
	b.refused(theirs, b.writing("a", "you:1", 1))
	b.granted(mine, b.reading("a", "me:2", 1)) // the writer has no claim
	b.refused(theirs, claiming(b.writing("a", "you:1", 1)))
	if answer := b.refused(mine, b.reading("a", "me:3", 1)); answer.Wait <= 0 || answer.Wait > hour || answer.Foreign {
		b.Errorf("a new reader was refused with %+v; the claim is for %v", answer, hour)
	}
	b.granted(mine, b.reading("a", "me:1", 1)) // sent again
	b.granted(mine, b.reading("a", "me:1", 2))
	b.release(mine, b.reading("a", "me:1", 0), true)
	b.release(mine, b.reading("a", "me:2", 0), true)
	b.refused(mine, b.reading("a", "me:3", 1)) // although it is free
	b.granted(theirs, claiming(b.writing("a", "you:1", 1)))
	b.granted(theirs, under(b.reading("a", "you:2", 1), "you:1"))
	b.refused(theirs, claiming(b.writing("a", "you:3", 1))) // behind a writer: no claim
	b.release(theirs, b.writing("a", "you:1", 0), true)
	b.granted(mine, b.reading("a", "me:3", 1))

	// A writer that gives up lets them in.
	b.refused(theirs, claiming(b.writing("a", "you:3", 1)))
	b.refused(mine, b.reading("a", "me:4", 1))
	woken, sub := b.listen(mine, "a")
	defer sub.Close()
	b.release(theirs, b.writing("a", "you:4", 0), false)
	b.refused(mine, b.reading("a", "me:4", 1))
	b.release(theirs, b.writing("a", "you:3", 0), false)
	b.wakes(woken, "a writer that gives up")
	b.granted(mine, b.reading("a", "me:4", 1))
}

func deadWritersKeepNoReaderOut(b *bench) {
	s := b.store()
	b.granted(s, b.reading("a", "me:1", 1))
	b.refused(s, claimingFor(b.writing("a", "dead:1", 1), ttl))
	b.refused(s, b.reading("a", "me:2", 1))
	time.Sleep(b.over(ttl))
	b.granted(s, b.reading("a", "me:2", 1))
}

// read takes the read lock.
func (b *bench) read(ctx context.Context, l *lock.Locker, name string) *lock.Lease {
	b.Helper()
	return b.take(ctx, l.ReadWrite(b.name(name)).Read())
}

// write takes the write lock.
func (b *bench) write(ctx context.Context, l *lock.Locker, name string) *lock.Lease {
	b.Helper()
	return b.take(ctx, l.ReadWrite(b.name(name)).Write())
}

func (b *bench) take(ctx context.Context, m *lock.Mutex) *lock.Lease {
	b.Helper()
	ctx, cancel := context.WithTimeout(ctx, b.hung())
	defer cancel()
	lease, err := m.Lock(ctx)
	if err != nil {
		b.Fatalf("lock %q: %v", m.Name(), err)
	}
	return lease
}

// mayRead checks whether a new reader is granted the lock.
func (b *bench) mayRead(l *lock.Locker, name string, want bool) {
	b.Helper()
	b.may(l.ReadWrite(b.name(name)).Read(), "read", want)
}

// mayWrite checks whether a new writer is granted the lock.
func (b *bench) mayWrite(l *lock.Locker, name string, want bool) {
	b.Helper()
	b.may(l.ReadWrite(b.name(name)).Write(), "write", want)
}

func (b *bench) may(m *lock.Mutex, what string, want bool) {
	b.Helper()
	lease, err := m.TryLock(b.Context())
	if err == nil {
		b.unlock(lease)
	} else if !errors.Is(err, lock.ErrNotAcquired) {
		b.Fatalf("try to %s %q: %v", what, m.Name(), err)
	}
	if (err == nil) != want {
		b.Fatalf("may %s %q: %v, want %v (%v)", what, m.Name(), err == nil, want, err)
	}
}

// closesToReaders waits until new readers are refused, as a writer that waits demands.
func (b *bench) closesToReaders(l *lock.Locker, name string) {
	b.Helper()
	awaitThat(b, "a waiting writer keeps new readers out", func() bool {
		lease, err := l.ReadWrite(b.name(name)).Read().TryLock(b.Context())
		if err == nil {
			b.unlock(lease)
		} else if !errors.Is(err, lock.ErrNotAcquired) {
			b.Fatalf("try to read %q: %v", name, err)
		}
		return err != nil
	})
}

func readsTogether(b *bench) {
	mine, theirs := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour, Poll: hour})
	readers := []*lock.Lease{
		b.read(b.Context(), mine, "a"), b.read(b.Context(), mine, "a"), b.read(b.Context(), theirs, "a"),
	}
	b.mayWrite(mine, "a", false)
	b.mayWrite(theirs, "a", false)
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease { return b.write(b.Context(), theirs, "a") })
	for _, reader := range readers {
		select {
		case <-got:
			b.Fatal("a writer was granted the lock beside a reader")
		case <-time.After(50 * time.Millisecond):
		}
		b.unlock(reader)
	}
	writer := b.received(got)
	if writer.Token() <= readers[0].Token() {
		b.Errorf("a writer's token %d came after the readers' %d", writer.Token(), readers[0].Token())
	}
	b.mayRead(mine, "a", false)
	b.mayRead(theirs, "a", false)
	b.mayWrite(mine, "a", false)
	b.unlock(writer)
	b.mayRead(mine, "a", true)
	b.mayWrite(theirs, "a", true)
}

// One release lets in every waiting reader, in all processes.
func letsAllWaitingReadersIn(b *bench) {
	const each = 5
	lockers := []*lock.Locker{
		b.locker(lock.Config{TTL: hour, Poll: hour}), b.locker(lock.Config{TTL: hour, Poll: hour}),
	}
	writer := b.write(b.Context(), lockers[0], "a")
	got := make(chan *lock.Lease, len(lockers)*each)
	for _, l := range lockers {
		for range each {
			go send(got, func() *lock.Lease { return b.read(b.Context(), l, "a") })
		}
	}
	time.Sleep(100 * time.Millisecond)
	b.unlock(writer)
	var readers []*lock.Lease
	for range cap(got) {
		select {
		case reader := <-got:
			readers = append(readers, reader)
		case <-time.After(soon):
			b.Fatalf("of %d waiting readers %d were let in", cap(got), len(readers))
		}
	}
	for _, reader := range readers {
		b.unlock(reader)
	}
	b.mayWrite(lockers[1], "a", true)
}

func readsReentrantly(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{})
	first := b.read(b.Context(), mine, "a")
	second := b.read(first.Context(), mine, "a")
	third := b.read(second.Context(), mine, "a")
	if second.Owner() != first.Owner() || third.Owner() != first.Owner() {
		b.Errorf("further holds have owners %s, %s, %s", first.Owner(), second.Owner(), third.Owner())
	}
	other := b.read(b.Context(), mine, "a")
	if other.Owner() == first.Owner() {
		b.Error("two readers have one owner")
	}
	b.unlock(other)
	b.unlock(first)
	b.unlock(third)
	time.Sleep(2 * ttl)
	if err := second.Err(); err != nil {
		b.Errorf("the last hold is no longer kept alive: %v", err)
	}
	b.mayWrite(theirs, "a", false)
	b.unlock(second)
	b.mayWrite(theirs, "a", true)
}

func downgrades(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	mine, theirs := b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{TTL: hour, Poll: hour})
	writer := b.write(b.Context(), mine, "a")
	b.mayRead(mine, "a", false) // without the context there is no ownership
	reader, again := b.read(writer.Context(), mine, "a"), b.read(writer.Context(), mine, "a")
	if reader.Token() != writer.Token() {
		b.Errorf("a writer with token %d reads with %d", writer.Token(), reader.Token())
	}
	further := b.write(reader.Context(), mine, "a") // it is still the writer
	b.unlock(further)
	b.unlock(again)
	b.mayRead(theirs, "a", false)

	reads, writes := make(chan *lock.Lease), make(chan *lock.Lease)
	go send(reads, func() *lock.Lease { return b.read(b.Context(), theirs, "a") })
	time.Sleep(50 * time.Millisecond)
	b.unlock(writer)
	beside := b.received(reads) // woken at once, although its poll is far
	go send(writes, func() *lock.Lease { return b.write(b.Context(), theirs, "a") })
	b.unlock(beside)
	time.Sleep(2 * ttl)
	if err := reader.Err(); err != nil {
		b.Errorf("a former writer reads no more: %v", err)
	}
	select {
	case <-writes:
		b.Error("a writer was granted the lock beside a reader")
	default:
	}
	b.unlock(reader)
	b.unlock(<-writes)
	b.mayRead(mine, "a", true)
}

// A writer must not queue behind readers that wait for it.
func downgradesPastWaitingReaders(b *bench) {
	l := b.locker(lock.Config{TTL: hour, Poll: hour})
	writer := b.write(b.Context(), l, "a")
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease { return b.read(b.Context(), l, "a") })
	time.Sleep(50 * time.Millisecond)
	reader := b.read(writer.Context(), l, "a")
	b.unlock(writer)
	b.unlock(<-got)
	b.unlock(reader)
	b.mayWrite(l, "a", true)
}

func refusesToUpgrade(b *bench) {
	l := b.locker(lock.Config{})
	upgrade := func(ctx context.Context) error {
		lease, err := l.ReadWrite(b.name("a")).Write().MaxWait(ttl).Lock(context.WithoutCancel(ctx))
		if err == nil {
			b.unlock(lease)
		}
		return err
	}
	reader := b.read(b.Context(), l, "a")
	if err := upgrade(reader.Context()); !errors.Is(err, lock.ErrUpgrade) || errors.Is(err, lock.ErrNotAcquired) {
		b.Errorf("the write lock with the context of a read lease: %v", err)
	}
	if reader.Err() != nil {
		b.Errorf("the attempt has ended the read lease: %v", reader.Err())
	}
	b.unlock(reader)
	if err := upgrade(reader.Context()); err != nil {
		b.Errorf("the write lock with the context of a former read lease: %v", err)
	}

	writer := b.write(b.Context(), l, "a")
	reader = b.read(writer.Context(), l, "a")
	b.unlock(writer)
	if err := upgrade(reader.Context()); !errors.Is(err, lock.ErrUpgrade) {
		b.Errorf("the write lock with the context of one who reads after writing: %v", err)
	}
	b.delete("a")
	if err := reader.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("unlock of a deleted lock: %v", err)
	}
}

func keepsReadersAlive(b *bench) {
	ttl := 3 * ttl // busy machines renew late
	lockers := []*lock.Locker{b.locker(lock.Config{TTL: ttl}), b.locker(lock.Config{TTL: 2 * ttl})}
	other := b.locker(lock.Config{})
	var readers []*lock.Lease
	for i := range 4 {
		readers = append(readers, b.read(b.Context(), lockers[i%2], "a"))
	}
	for end := time.Now().Add(3 * ttl); time.Now().Before(end); time.Sleep(ttl / 7) {
		b.mayWrite(other, "a", false)
	}
	for _, reader := range readers {
		if !reader.Valid() {
			b.Errorf("a reader's lease is no longer valid: %v", reader.Err())
		}
		b.unlock(reader)
	}
	b.mayWrite(other, "a", true)
}

// fixed takes a lock for a fixed time.
func (b *bench) fixed(m *lock.Mutex, ttl time.Duration) *lock.Lease {
	b.Helper()
	return b.take(b.Context(), m.With(lock.Options{TTL: ttl, Fixed: true}))
}

func letsFixedReadersEnd(b *bench) {
	mine, theirs := b.locker(lock.Config{}), b.locker(lock.Config{Poll: hour})
	begin := time.Now()
	long := b.fixed(mine.ReadWrite(b.name("a")).Read(), 2*ttl)
	short := b.fixed(mine.ReadWrite(b.name("a")).Read(), ttl)
	writer := b.write(b.Context(), theirs, "a")
	if waited := time.Since(begin); waited < 2*ttl-100*time.Millisecond-b.suite.Step || waited > 2*ttl+time.Second+b.late() {
		b.Errorf("leases of %v and %v were over after %v", ttl, 2*ttl, waited)
	}
	for _, reader := range []*lock.Lease{short, long} {
		if reader.Valid() {
			b.Error("a reader's lease is valid though a writer has the lock")
		}
		if loss := b.lost(reader, soon); loss.Cause != renewal.Expired {
			b.Errorf("a fixed lease was lost by %v", loss.Cause)
		}
		if err := reader.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
			b.Errorf("unlock of an expired lease: %v", err)
		}
	}
	b.mayRead(mine, "a", false) // the writer's lock was not touched
	b.unlock(writer)
}

func letsAFixedWriterEnd(b *bench) {
	mine, theirs := b.locker(lock.Config{}), b.locker(lock.Config{Poll: hour})
	b.fixed(mine.ReadWrite(b.name("a")).Write(), ttl)
	begin := time.Now()
	got := make(chan *lock.Lease)
	for range 2 {
		go send(got, func() *lock.Lease { return b.read(b.Context(), theirs, "a") })
	}
	first, second := b.received(got), b.received(got)
	if waited := time.Since(begin); waited > ttl+time.Second+b.late() {
		b.Errorf("a lease of %v was over after %v", ttl, waited)
	}
	b.unlock(first)
	b.unlock(second)
}

// Dead readers among live ones do not block a writer for longer than their own TTL.
func outlivesDeadReaders(b *bench) {
	s := b.store()
	for i := range 10 {
		b.granted(s, lasting(b.reading("a", fmt.Sprintf("dead:%d", i), 1), ttl))
	}
	mine, theirs := b.locker(lock.Config{TTL: 3 * ttl}), b.locker(lock.Config{Poll: hour})
	reader := b.read(b.Context(), mine, "a")
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease { return b.write(b.Context(), theirs, "a") })
	time.Sleep(2 * ttl)
	select {
	case <-got:
		b.Error("a writer was granted the lock beside a reader")
	default:
	}
	begin := time.Now()
	b.unlock(reader)
	b.unlock(<-got)
	if waited := time.Since(begin); waited > time.Second+b.late() {
		b.Errorf("the writer had to wait %v for the dead", waited)
	}

	b.granted(s, lasting(b.reading("a", "dead:1", 1), ttl))
	begin = time.Now()
	b.unlock(b.write(b.Context(), theirs, "a"))
	if waited := time.Since(begin); waited > ttl+time.Second+b.late() {
		b.Errorf("waited %v for the end of a TTL of %v", waited, ttl)
	}
}

func reportsDeletionToReaders(b *bench) {
	l := b.locker(lock.Config{TTL: ttl})
	var second *lock.Lease
	first, loss := b.takeAway(func() *lock.Lease {
		second = b.read(b.Context(), l, "a")
		return b.read(b.Context(), l, "a")
	})
	for _, loss := range []*lock.LostError{loss, b.lost(second, interval()+b.late())} {
		if loss.Cause != renewal.Deleted && !b.tooSlow(loss) {
			b.Errorf("lost by %v", loss.Cause)
		}
	}
	for _, reader := range []*lock.Lease{first, second} {
		if err := reader.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
			b.Errorf("unlock of a deleted lock: %v", err)
		}
	}
}

func reportsAWriterToReaders(b *bench) {
	s := b.store()
	l := b.locker(lock.Config{TTL: ttl})
	taken := b.writing("a", "you:1", 1)
	reader := b.loseTo(s, taken, func() *lock.Lease { return b.read(b.Context(), l, "a") })
	if err := reader.Unlock(b.Context()); !errors.Is(err, lock.ErrLost) {
		b.Errorf("unlock of a lock that was taken over: %v", err)
	}
	b.release(s, b.writing("a", "you:1", 0), true) // the writer's lock was left alone
}

// neverReadsBesideAWriter makes clients read and write data that only the lock protects.
func neverReadsBesideAWriter(b *bench) {
	const lockers, clients, rounds = 3, 9, 15
	var written, latest int64 // not atomic: the lock makes them safe, and -race checks it
	var readers atomic.Int64
	var work sync.WaitGroup
	for i := range lockers {
		rw := b.locker(lock.Config{}).ReadWrite(b.name("a"))
		if i == 0 {
			rw = rw.WritersFirst()
		}
		write := func(ctx context.Context) error {
			return rw.Write().Do(ctx, func(ctx context.Context) error {
				if n := readers.Load(); n != 0 {
					b.Errorf("a writer has the lock beside %d readers", n)
				}
				written++
				return rw.Read().Do(ctx, func(context.Context) error {
					latest = written
					return nil
				})
			})
		}
		read := func(ctx context.Context) error {
			return rw.Read().Do(ctx, func(context.Context) error {
				readers.Add(1)
				defer readers.Add(-1)
				if latest != written {
					b.Errorf("read %d where %d was written", latest, written)
				}
				time.Sleep(rand.N(time.Millisecond))
				return nil
			})
		}
		for client := range clients / lockers {
			work.Go(func() {
				for round := range rounds {
					do := read
					if (round+client)%3 == 0 {
						do = write
					}
					if err := do(b.Context()); err != nil {
						b.Errorf("do: %v", err)
					}
				}
			})
		}
	}
	work.Wait()
	if want := int64(clients * rounds / 3); written != want {
		b.Errorf("%d writes made %d", want, written)
	}
}

func leavesNoReaderWhenCancelled(b *bench) {
	l, other := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour, Poll: hour})
	rw := l.ReadWrite(b.name("a")).WritersFirst()
	var work sync.WaitGroup
	for i := range 60 {
		side := rw.Read()
		if i%3 == 0 {
			side = rw.Write()
		}
		work.Go(func() {
			ctx, cancel := context.WithCancel(b.Context())
			defer time.AfterFunc(rand.N(3*time.Millisecond), cancel).Stop()
			lease, err := side.Lock(ctx)
			if err == nil {
				b.unlock(lease)
			} else if !errors.Is(err, context.Canceled) {
				b.Errorf("acquisition %d: %v", i, err)
			}
		})
	}
	work.Wait()
	b.unlock(b.write(b.Context(), other, "a"))
	b.unlock(b.read(b.Context(), other, "a"))
}

func putsWritersFirst(b *bench) {
	mine, theirs := b.locker(lock.Config{TTL: hour}), b.locker(lock.Config{TTL: hour, Poll: hour})
	rw := theirs.ReadWrite(b.name("a")).WritersFirst()
	reader := b.read(b.Context(), mine, "a")
	if _, err := rw.Write().TryLock(b.Context()); !errors.Is(err, lock.ErrNotAcquired) {
		b.Fatalf("try to write: %v", err)
	}
	b.mayRead(mine, "a", true) // a writer that does not wait blocks no reader

	ctx, cancel := context.WithCancel(b.Context())
	gaveUp := make(chan error)
	go func() {
		_, err := rw.Write().Lock(ctx)
		gaveUp <- err
	}()
	b.closesToReaders(mine, "a")
	b.unlock(b.read(reader.Context(), mine, "a"))
	got := make(chan *lock.Lease)
	go send(got, func() *lock.Lease { return b.read(b.Context(), theirs, "a") })
	time.Sleep(50 * time.Millisecond)
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		b.Errorf("a cancelled writer: %v", err)
	}
	b.unlock(<-got) // the writer that gives up wakes the readers that it blocked

	writes := make(chan *lock.Lease)
	go send(writes, func() *lock.Lease { return b.take(b.Context(), rw.Write()) })
	b.closesToReaders(mine, "a")
	go send(got, func() *lock.Lease { return b.read(b.Context(), mine, "a") })
	time.Sleep(50 * time.Millisecond)
	b.unlock(reader)
	writer := b.received(writes)
	select {
	case <-got:
		b.Error("a reader was granted the lock beside a writer, or before it")
	case <-time.After(50 * time.Millisecond):
	}
	b.unlock(writer)
	b.unlock(<-got)
}

// Readers that overlap without a gap do not starve a writer that goes first, and are not
// starved either.
func servesWritersAmongManyReaders(b *bench) {
	const streams, writes = 4, 5
	l := b.locker(lock.Config{})
	var stop atomic.Bool
	var reads atomic.Int64
	var work sync.WaitGroup
	for i := range streams {
		rw := b.locker(lock.Config{}).ReadWrite(b.name("a"))
		work.Go(func() {
			time.Sleep(time.Duration(i) * 5 * time.Millisecond)
			for !stop.Load() {
				lease := b.take(b.Context(), rw.Read())
				time.Sleep(20 * time.Millisecond)
				b.unlock(lease)
				reads.Add(1)
			}
		})
	}
	time.Sleep(100 * time.Millisecond)
	for range writes {
		before := reads.Load()
		b.unlock(b.take(b.Context(), l.ReadWrite(b.name("a")).WritersFirst().Write()))
		for reads.Load() < before+streams {
			time.Sleep(5 * time.Millisecond)
		}
	}
	stop.Store(true)
	work.Wait()
}
