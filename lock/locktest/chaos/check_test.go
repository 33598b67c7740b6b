package chaos

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/renewal"
)

// The checkers find breaches in invented histories, and accept those that a fault
// excuses.

// story is a round with an invented history: of one mutex, one read-write lock, one
// semaphore's permits and a queue. Its instants are milliseconds.
type story struct {
	*judge
	history
}

func newStory(t *testing.T, uses ...*use) *story {
	return &story{
		judge:   &judge{t: t, plan: &plan{Site: single}, tally: newTally(), told: map[string]int{}, drained: true, strict: true},
		history: history{uses: uses, messages: map[string]*message{}, refused: map[string]string{}, lags: map[int][]event{}, roundTrips: map[int][]event{}},
	}
}

func ms(n int) instant { return instant(n) * instant(time.Millisecond) }

func (s *story) during(kind string, from, to int) *window {
	w := &window{Kind: kind, Place: -1, Node: -1, Begin: ms(from), End: ms(to)}
	s.journal.all = append(s.journal.all, w)
	return w
}

// hold is a use that was called at one instant, granted at the next, and valid up to the
// last.
func hold(k kind, call, back, valid int, token int64) *use {
	return &use{
		process: 1, kind: k, name: "a", verb: verbLock, ttl: 10 * time.Second, count: 1, granted: true, token: token,
		call: ms(call), back: ms(back), valid: ms(valid), releasing: ms(valid), released: ms(valid + 1), releaseOK: true,
	}
}

func failed(k kind, from, at int, classes ...string) *use {
	return &use{process: 1, kind: k, name: "a", verb: verbLock, ttl: 10 * time.Second, call: ms(from), back: ms(at), releasing: forever, released: forever,
		failures: []failure{{evFail, ms(from), ms(at), classes, "it failed"}}}
}

func TestTwoHoldersAreFound(t *testing.T) {
	for _, k := range []kind{mutexKind, fairKind} {
		s := newStory(t, hold(k, 0, 10, 30, 1), hold(k, 5, 29, 40, 2))
		s.checkExclusion(&s.history)
		require.Equal(t, map[string]int{oneHolder: 1}, s.tally.broken)
		s.checkModel(&s.history)
		require.Equal(t, 1, s.tally.broken[linearizable])
	}
	s := newStory(t, hold(mutexKind, 0, 10, 30, 1), hold(mutexKind, 5, 30, 40, 2))
	s.checkExclusion(&s.history)
	s.checkModel(&s.history)
	require.Zero(t, s.tally.total(), "one after the other")
}

func TestLostDataExcuseTheLeasesAroundThem(t *testing.T) {
	around := newStory(t, hold(mutexKind, 0, 10, 30, 1), hold(mutexKind, 22, 29, 40, 2))
	around.during(dataLost, 20, 21)
	around.checkExclusion(&around.history)
	require.Zero(t, around.tally.total())
	require.Equal(t, 1, around.tally.unjudged[oneHolder])

	late := newStory(t, hold(mutexKind, 22, 25, 30, 1), hold(mutexKind, 5, 29, 40, 2))
	late.during(dataLost, 20, 21)
	late.checkExclusion(&late.history)
	require.Zero(t, late.tally.total(), "the second to learn of its lease was granted it first, and lost it")

	after := newStory(t, hold(mutexKind, 22, 25, 30, 1), hold(mutexKind, 22, 29, 40, 2))
	after.during(dataLost, 20, 21)
	after.checkExclusion(&after.history)
	require.Equal(t, 1, after.tally.broken[oneHolder], "both leases were granted after the loss")

	waited := newStory(t, hold(mutexKind, 5, 12_000, 12_500, 1), hold(mutexKind, 6, 12_400, 13_000, 2))
	waited.during(dataLost, 20, 21)
	waited.checkExclusion(&waited.history)
	require.Equal(t, 1, waited.tally.broken[oneHolder], "both were called for before the loss, and granted more than a TTL after it")

	claimed := newStory(t)
	claimed.messages["a"] = &message{id: "a", runs: []*use{hold(queueKind, 11_022, 11_022, 11_040, 1), hold(queueKind, 11_030, 11_030, 11_040, 2)}}
	claimed.during(dataLost, 11_000, 11_001)
	claimed.checkExclusion(&claimed.history)
	require.Zero(t, claimed.tally.total(), "the second to begin may have claimed the message before the loss")
}

func TestAWriterBesideAReaderIsFound(t *testing.T) {
	s := newStory(t, hold(readKind, 0, 10, 30, 1), hold(readKind, 0, 11, 30, 1), hold(writeKind, 5, 29, 40, 2))
	s.checkExclusion(&s.history)
	require.Equal(t, map[string]int{readersApart: 2}, s.tally.broken)
	s = newStory(t, hold(readKind, 0, 10, 30, 1), hold(readKind, 0, 11, 30, 1))
	s.checkExclusion(&s.history)
	s.checkModel(&s.history)
	require.Zero(t, s.tally.total())
}

func TestTokensThatShrinkAreFound(t *testing.T) {
	s := newStory(t, hold(mutexKind, 0, 10, 20, 7), hold(mutexKind, 21, 30, 40, 6), hold(mutexKind, 41, 42, 43, 7))
	s.checkTokens(&s.history)
	require.Equal(t, map[string]int{tokensGrow: 2}, s.tally.broken)

	lost := newStory(t, hold(mutexKind, 0, 10, 20, 7), hold(mutexKind, 25, 30, 40, 6))
	lost.during(dataLost, 21, 22)
	lost.checkTokens(&lost.history)
	require.Equal(t, 1, lost.tally.broken[tokensGrow], "they grow across a loss of data")

	set := newStory(t, hold(mutexKind, 0, 10, 20, 7), hold(mutexKind, 25, 30, 40, 6))
	set.during(dataLost, 21, 22)
	set.during(stepped, 5, 5).Size = -time.Second
	set.checkTokens(&set.history)
	require.Zero(t, set.tally.total(), "unless the clock was set back")

	for _, c := range []struct {
		back   time.Duration
		after  int // ms
		breaks int
	}{{100 * time.Second, 70_000, 0}, {100 * time.Second, 50_000, 1}, {50 * time.Second, 70_000, 1}} {
		s := newStory(t, hold(mutexKind, 0, 10, 20, 7), hold(mutexKind, c.after, c.after+10, c.after+20, 6))
		s.during(stepped, 5, 5).Size = -c.back / 2
		s.during(stepped, 7, 7).Size = -c.back / 2
		s.checkTokens(&s.history)
		s.checkModel(&s.history)
		require.Equal(t, c.breaks, s.tally.broken[tokensGrow], "the counter's time is over, and the clock behind: %v", c)
		require.Equal(t, c.breaks, s.tally.broken[linearizable], "%v", c)
	}

	wild := newStory(t, hold(mutexKind, 0, 10, 20, -1<<63))
	wild.checkTokens(&wild.history)
	require.Equal(t, 1, wild.tally.broken[tokensBounded])
}

// Dead waiters keep their places for longer if the server's clock was set back.
func TestFreeLockAfterAStepBackIsAwaited(t *testing.T) {
	s := newStory(t)
	limit := s.freeLimit()
	s.during(stepped, 5, 5).Size = 20 * time.Second
	require.Equal(t, limit, s.freeLimit())
	s.during(stepped, 7, 7).Size = -20 * time.Second
	require.Equal(t, limit+20*time.Second, s.freeLimit())
}

func TestPermitsThatDoNotExistAreFound(t *testing.T) {
	for _, k := range []kind{permitsKind, semaphoreKind} {
		s := newStory(t, hold(k, 0, 10, 30, 1), hold(k, 5, 29, 40, 2))
		s.checkPermits(&s.history)
		require.Equal(t, map[string]int{permitsExist: 1}, s.tally.broken)
	}
}

// A killed process takes permits without owners with it, whatever it would have repeated.
func TestPermitsDieWithTheirProcess(t *testing.T) {
	held := hold(semaphoreKind, 1, 3, 5, 0)
	unanswered := failed(semaphoreKind, 1, 3, "unavailable", "error")
	for _, u := range []*use{held, unanswered} {
		require.False(t, u.diedWithPermit(), "its process lives")
		u.isDead = true
	}
	require.True(t, unanswered.diedWithPermit())
	require.False(t, held.diedWithPermit(), "it was returned")
	held.releaseOK = false // the release has failed, and was to be repeated
	require.True(t, held.diedWithPermit())
}

func TestLostMessagesAreFound(t *testing.T) {
	s := newStory(t)
	s.messages["kept"] = &message{id: "kept", put: ms(1), accepted: ms(2), runs: []*use{hold(queueKind, 3, 3, 9, 1)}}
	s.messages["lost"] = &message{id: "lost", put: ms(1), accepted: ms(2)}
	s.messages["never accepted"] = &message{id: "never accepted", put: ms(1), accepted: forever}
	s.checkQueue(&s.history)
	require.Equal(t, map[string]int{messageKept: 1}, s.tally.broken)
	require.Equal(t, 2, s.tally.checked[messageKept])

	excused := newStory(t)
	excused.messages["lost"] = &message{id: "lost", put: ms(1), accepted: ms(2)}
	excused.during(dataLost, 3, 4)
	excused.checkQueue(&excused.history)
	require.Zero(t, excused.tally.total())
}

func TestTwoWorkersOfAMessageAreFound(t *testing.T) {
	before, after := hold(queueKind, 0, 0, 30, 1), hold(queueKind, 20, 20, 40, 2)
	before.open, after.open = ms(50), ms(60)
	s := newStory(t)
	s.messages["a"] = &message{id: "a", accepted: forever, runs: []*use{before, after}}
	s.checkExclusion(&s.history)
	s.checkQueue(&s.history)
	require.Equal(t, map[string]int{messageApart: 1, contextEnds: 1}, s.tally.broken)
}

func TestFailuresOfNeighboursAreFound(t *testing.T) {
	s := newStory(t, failed(mutexKind, 5, 10, "no permission", "error"))
	s.during(forbidden, 0, 20).Name = "b"
	s.checkErrors(&s.history)
	require.Equal(t, map[string]int{noNeighbour: 1}, s.tally.broken)

	own := newStory(t, failed(mutexKind, 5, 10, "no permission", "error"))
	own.during(forbidden, 0, 20).Name = "a"
	own.checkErrors(&own.history)
	require.Zero(t, own.tally.total())

	short := newStory(t, failed(mutexKind, 5, 10, "error"))
	short.during(slow, 0, 20).Size = 15 * time.Millisecond
	short.checkErrors(&short.history)
	require.Equal(t, map[string]int{noNeighbour: 1}, short.tally.broken, "a delay explains no failure with a long TTL")

	cut := newStory(t, failed(mutexKind, 5, 10, "unavailable", "error"))
	cut.during(blackhole, 0, 20)
	cut.checkErrors(&cut.history)
	require.Zero(t, cut.tally.total())
}

func TestLeasesLostForNothingAreFound(t *testing.T) {
	lost := hold(permitsKind, 0, 10, 3000, 1)
	lost.lost = renewal.Deleted
	s := newStory(t, lost)
	s.during(memory, 1000, 2000)
	s.checkErrors(&s.history)
	require.Equal(t, map[string]int{heldSurvives: 1}, s.tally.broken)

	s = newStory(t, lost)
	s.during(frozen, 1000, 2000)
	s.checkErrors(&s.history)
	require.Zero(t, s.tally.total())
}

func TestReleasesRefusedForMemoryAreFound(t *testing.T) {
	u := hold(mutexKind, 0, 10, 20, 1)
	u.failures = []failure{{evInner, ms(12), ms(13), []string{"out of memory", "error"}, "OOM"}}
	s := newStory(t, u)
	s.during(memory, 0, 100)
	s.checkErrors(&s.history)
	require.Equal(t, map[string]int{heldReleases: 1}, s.tally.broken)
}

func TestOpenLatchesAreFound(t *testing.T) {
	closed := hold(latchKind, 0, 10, 30, 0)
	closed.verb = verbTry
	s := newStory(t, closed, hold(latchKind, 15, 20, 20, 0))
	s.checkLatches(&s.history)
	require.Equal(t, map[string]int{latchCloses: 1}, s.tally.broken)
	s = newStory(t, closed, hold(latchKind, 15, 31, 31, 0))
	s.checkLatches(&s.history)
	require.Zero(t, s.tally.total())
}

// A lock that is wanted, and held by no driver, is found: a fault of its own server excuses
// it, that of another one does not.
func TestIdleLocksAreFound(t *testing.T) {
	waited := func(back int) *story {
		u := hold(mutexKind, 20, back, back+1, 2)
		s := newStory(t, hold(mutexKind, 0, 10, 30, 1), u)
		s.plan.Names = []namePlan{{Name: "a", Kind: mutexKind, Role: busy}}
		s.masters = map[string]int{"a": 0}
		return s
	}
	s := waited(8000)
	s.during(mute, 0, 9000).Node = 1
	s.checkIdle(&s.history, now())
	require.Equal(t, map[string]int{wantedGranted: 1}, s.tally.broken)

	s = waited(8000)
	s.during(frozen, 10, 50).Node = 0
	s.checkIdle(&s.history, now())
	require.Zero(t, s.tally.total(), "its own server was stopped")
	require.Equal(t, 1, s.tally.unjudged[wantedGranted])

	s = waited(8000)
	s.processes = []*reports{{number: 1}}
	s.lags[1] = []event{{What: evLag, At: ms(5000), N: int64(2 * time.Second)}}
	s.checkIdle(&s.history, now())
	require.Zero(t, s.tally.total(), "a process got no processor")

	s = waited(8000)
	s.uses = append(s.uses, hold(mutexKind, 30, 3000, 5000, 3))
	s.checkIdle(&s.history, now())
	require.Zero(t, s.tally.total(), "another driver held it for a part of the time")

	s = waited(8000)
	unobserved := hold(mutexKind, 30, 3000, 5000, 0)
	unobserved.granted, unobserved.ran = false, true
	s.uses = append(s.uses, unobserved)
	s.checkIdle(&s.history, now())
	require.Zero(t, s.tally.total(), "it was granted to a function, which ran")

	s = waited(5000)
	unobserved = hold(mutexKind, 20, 0, 4000, 2)
	unobserved.granted, unobserved.ran, unobserved.back = false, true, forever
	s.uses[1] = unobserved
	s.checkIdle(&s.history, now())
	require.Zero(t, s.tally.total(), "the function has returned, and wants it no longer")

	s = waited(5000)
	s.checkIdle(&s.history, now())
	require.Zero(t, s.tally.total(), "it waited for a poll")
}

// A failure is not blamed on the library while requests to the same server that have nothing
// to do with it take long.
func TestSlowRoundTripsExcuseFailures(t *testing.T) {
	check := func(roundTrip event) int {
		s := newStory(t, failed(mutexKind, 1000, 2000, "unavailable"))
		s.masters = map[string]int{"a": 1}
		s.roundTrips[1] = []event{roundTrip}
		s.checkErrors(&s.history)
		return s.tally.total()
	}
	slow := event{What: evRoundTrip, At: ms(1500), N: int64(100 * time.Millisecond), Node: 1}
	require.Zero(t, check(slow))
	other := slow
	other.Node = 2
	require.Equal(t, 1, check(other), "another server's")
	late := slow
	late.At = ms(2500)
	require.Equal(t, 1, check(late), "afterwards")

	lost := hold(mutexKind, 0, 10, 2000, 1)
	lost.ttl, lost.lost = 2*time.Second, renewal.Unreachable
	s := newStory(t, lost)
	s.roundTrips[1] = []event{slow}
	s.checkErrors(&s.history)
	require.Equal(t, map[string]int{heldSurvives: 1}, s.tally.broken, "a lease has its TTL, not the time of one request")

	s = newStory(t, lost)
	for at := 1000; at < 1700; at += 100 {
		s.roundTrips[1] = append(s.roundTrips[1], event{What: evRoundTrip, At: ms(at), N: int64(100 * time.Millisecond)})
	}
	s.checkErrors(&s.history)
	require.Zero(t, s.tally.total(), "requests were slow for a quarter of its TTL")
}

func TestLeasesThatAreLostLateAreFound(t *testing.T) {
	u := hold(mutexKind, 0, 10, 2000, 1)
	u.end, u.noticed = ms(2000), ms(4000)
	s := newStory(t, u)
	s.checkErrors(&s.history)
	require.Equal(t, map[string]int{lostInTime: 1}, s.tally.broken)

	s = newStory(t, u)
	s.lags[1] = []event{{What: evLag, At: ms(3900), N: int64(1800 * time.Millisecond)}}
	s.checkErrors(&s.history)
	require.Zero(t, s.tally.total(), "the process got no processor meanwhile")
}

// The renewals of one lease hang: that excuses the loss of this one alone. What is older than
// the TTL of a lease does not excuse its loss.
func TestLostNeighboursOfAHangingLeaseAreFound(t *testing.T) {
	lost := hold(mutexKind, 0, 10, 20_000, 1)
	lost.ttl, lost.lost = 2*time.Second, renewal.Unreachable
	s := newStory(t, lost)
	s.during(hanging, 16_000, 20_000).Name = "b"
	s.during(frozen, 5000, 10_000)
	s.checkErrors(&s.history)
	require.Equal(t, map[string]int{heldSurvives: 1}, s.tally.broken)

	s = newStory(t, lost)
	s.during(hanging, 16_000, 20_000).Name = "a"
	s.checkErrors(&s.history)
	require.Zero(t, s.tally.total())
}

// What a machine that stalls may break is judged again, and the rest never is.
func TestSafetyIsApart(t *testing.T) {
	s := newStory(t)
	s.broke(wantedGranted, 0, 1, "late")
	require.Zero(t, s.tally.unsafe())
	s.broke(oneHolder, 0, 1, "two holders")
	require.Equal(t, 1, s.tally.unsafe())
	require.Equal(t, 2, s.tally.total())
	require.Subset(t, promises, safety)
}
