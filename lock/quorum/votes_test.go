package quorum_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// behaviour is how a node answers an acquisition.
type behaviour int

const (
	grants  behaviour = iota
	refuses           // another has the lock there
	out               // cannot be reached, and has certainly done nothing
	broken            // refuses it with a permanent error
	mute              // grants it, and the reply is lost
	behaviours
)

// errBroken is a permanent error.
var errBroken = fmt.Errorf("broken: %w", driver.ErrNotDone)

const (
	ttl         = 10 * time.Second
	nodeTimeout = 200 * time.Millisecond
)

// behave sets the behaviour of booths.
func behave(all []*booth, pattern []behaviour) {
	for i, b := range all {
		switch pattern[i] {
		case refuses:
			b.give("a", "other:1", ttl)
		case out:
			b.set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		case broken:
			b.set(func(string, *driver.Hold) mishap { return mishap{err: errBroken} })
		case mute:
			b.set(func(request string, _ *driver.Hold) mishap { return mishap{mute: request == "acquire"} })
		}
	}
}

// patterns yields every way in which n nodes can behave.
func patterns(n int) func(yield func([]behaviour) bool) {
	return func(yield func([]behaviour) bool) {
		pattern := make([]behaviour, n)
		for {
			if !yield(pattern) {
				return
			}
			i := 0
			for ; i < n && pattern[i] == behaviours-1; i++ {
				pattern[i] = 0
			}
			if i == n {
				return
			}
			pattern[i]++
		}
	}
}

var everyOrder = flag.Bool("every-order", false, "have the tests of every pattern try five nodes in every order, not in one drawn for each pattern")

// everyPattern runs a test with every pattern of behaviours of three nodes, and of five in one
// order each, drawn at random, until one fails. Each is in a bubble.
func everyPattern(t *testing.T, test func(t *testing.T, pattern []behaviour)) {
	t.Helper()
	for _, n := range []int{3, 5} {
		for pattern := range patterns(n) {
			if n == 5 && !*everyOrder {
				if !slices.IsSorted(pattern) {
					continue
				}
				pattern = slices.Clone(pattern)
				rand.Shuffle(n, func(i, j int) { pattern[i], pattern[j] = pattern[j], pattern[i] })
			}
			synctest.Test(t, func(t *testing.T) { test(t, pattern) })
			if t.Failed() {
				t.Fatalf("the nodes' behaviour was %v", pattern)
			}
		}
	}
}

func hold(owner string) *driver.Hold {
	return &driver.Hold{Kind: driver.KindMutex, Name: "a", Owner: owner, Count: 1, TTL: ttl}
}

// Every way in which three and five nodes can answer an acquisition: the owner, the
// error, the time it takes, and that nothing stays behind.
func TestEveryPatternOfVotes(t *testing.T) {
	everyPattern(t, vote)
}

func vote(t *testing.T, pattern []behaviour) {
	var count [behaviours]int
	for _, b := range pattern {
		count[b]++
	}
	n := len(pattern)
	majority := n/2 + 1
	all, stores := booths(n)
	behave(all, pattern)
	store, err := quorum.New(stores, quorum.Config{NodeTimeout: nodeTimeout})
	require.NoError(t, err)
	defer store.Close()

	begin := time.Now()
	answer, err := store.Acquire(t.Context(), hold("me:1"))
	took := time.Since(begin)
	switch {
	case count[grants] >= majority:
		require.NoError(t, err)
		assert.Equal(t, driver.Granted, answer.Verdict)
		assert.Positive(t, answer.Token)
		assert.Zero(t, took, "nobody waits for nodes that are mute")
		h := hold("me:1")
		h.Count = 0
		held, err := store.Release(t.Context(), h)
		require.NoError(t, err)
		assert.True(t, held)
	case count[refuses] > 0 && count[grants]+count[refuses] >= majority:
		require.NoError(t, err)
		assert.Equal(t, driver.Refused, answer.Verdict)
		assert.Greater(t, answer.Wait, ttl-nodeTimeout)
		assert.LessOrEqual(t, answer.Wait, ttl)
		if count[grants] == 0 {
			assert.Zero(t, took, "refused by nodes that grant nothing, it waits for a mute one")
		}
	default:
		var said *quorum.Error
		require.ErrorAs(t, err, &said)
		assert.LessOrEqual(t, took, nodeTimeout)
		if count[mute] == 0 {
			assert.Zero(t, took)
		}
		assert.Equal(t, count[broken] <= n-majority, errors.Is(err, driver.ErrUnavailable), err)
		assert.Equal(t, count[grants]+count[mute] == 0, errors.Is(err, driver.ErrNotDone), err)
		assertVotes(t, pattern, said)
	}
	assert.LessOrEqual(t, took, nodeTimeout)
	synctest.Wait()
	time.Sleep(3 * nodeTimeout) // less than the TTL by far
	synctest.Wait()
	for i, b := range all {
		assert.NotContains(t, b.holder("a"), "me:", "node %d", i)
	}
}

// assertVotes checks the error's vote of each node.
func assertVotes(t *testing.T, pattern []behaviour, e *quorum.Error) {
	require.Len(t, e.Votes, len(pattern))
	for i, v := range e.Votes {
		assert.Equal(t, i, v.Node)
		if v.Said == quorum.Silent {
			continue // the others had decided
		}
		want := map[behaviour]quorum.Said{grants: quorum.Done, refuses: quorum.Refused, out: quorum.Failed, broken: quorum.Failed, mute: quorum.Failed}
		assert.Equal(t, want[pattern[i]], v.Said)
		switch pattern[i] {
		case out:
			require.ErrorIs(t, v.Err, errOut)
		case broken:
			require.ErrorIs(t, v.Err, errBroken)
			require.ErrorIs(t, e, errBroken)
		case mute:
			require.ErrorIs(t, v.Err, context.DeadlineExceeded)
		}
	}
}

// refused is a node that refuses acquisitions with an answer of its own.
type refused struct {
	*booth
	answer driver.Answer
	after  time.Duration
}

func (r refused) AcquireProposing(context.Context, *driver.Hold, int64) (driver.Answer, time.Time, error) {
	time.Sleep(r.after)
	return r.answer, time.Time{}, nil
}

// A refusal follows from those that have come: another use of the name counts if it excludes a majority,
// and the waiter polls if a single node sends it no message.
func TestRefusals(t *testing.T) {
	held, mute := driver.Answer{Wait: 2 * time.Second}, driver.Answer{Wait: time.Second, Silent: true}
	foreign, other := driver.Answer{Wait: 3 * time.Second, Foreign: true}, driver.Answer{Wait: 4 * time.Second, OtherKind: true}
	for name, test := range map[string]struct {
		nodes [3]driver.Answer // the last one comes when the others have decided
		want  driver.Answer
	}{
		"held":                         {[3]driver.Answer{held, held, mute}, driver.Answer{Wait: 2 * time.Second}},
		"held, without messages":       {[3]driver.Answer{held, mute, held}, driver.Answer{Wait: 2 * time.Second, Silent: true}},
		"of unknown duration":          {[3]driver.Answer{{}, held, held}, driver.Answer{}},
		"foreign at a majority":        {[3]driver.Answer{foreign, foreign, held}, driver.Answer{Wait: 3 * time.Second, Foreign: true, Silent: true}},
		"foreign, not all known":       {[3]driver.Answer{held, foreign, foreign}, driver.Answer{Wait: 3 * time.Second, Silent: true}},
		"another kind at a majority":   {[3]driver.Answer{other, other, held}, driver.Answer{Wait: 4 * time.Second, OtherKind: true, Silent: true}},
		"another kind, not all known":  {[3]driver.Answer{held, other, other}, driver.Answer{Wait: 4 * time.Second, Silent: true}},
		"another kind and foreign one": {[3]driver.Answer{foreign, other, held}, driver.Answer{Wait: 4 * time.Second, Silent: true}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(3)
				for i, b := range all {
					stores[i] = refused{b, test.nodes[i], time.Duration(i/2) * time.Millisecond}
				}
				answer, err := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...).Acquire(t.Context(), hold("me:1"))
				require.NoError(t, err)
				require.Equal(t, test.want, answer)
			})
		})
	}
}
