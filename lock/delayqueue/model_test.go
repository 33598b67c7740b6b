package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/lock/locktest"
)

// The scripts against a naive model, under random operations. After each, the server's
// state and its reply match the model's.

const (
	modelAttempts = 3
	modelTTL      = 10 * time.Second
	modelKept     = 25 * time.Second // dead letters
)

// operation is one step, with random numbers as its parameters.
type operation struct {
	What    string
	A, B    int
	Instant time.Duration
}

func operations() *rapid.Generator[operation] {
	return rapid.Custom(func(t *rapid.T) operation {
		return operation{
			What: rapid.SampledFrom([]string{
				"put", "put", "claim", "claim", "claim", "done", "done", "retried", "buried", "returned", "renew",
				"move", "cancel", "revive", "pass", "pass",
			}).Draw(t, "what"),
			A:       rapid.IntRange(0, 7).Draw(t, "a"),
			B:       rapid.IntRange(0, 2).Draw(t, "b"),
			Instant: rapid.SampledFrom([]time.Duration{0, 500 * time.Microsecond, time.Millisecond, 3 * time.Second, modelTTL, 20 * time.Second}).Draw(t, "instant"),
		}
	})
}

// modelled is a message of the model.
type modelled struct {
	place   string // due, leased or dead
	at      int64  // its score there
	due     int64
	attempt int
	token   int64
}

// model is a naive queue.
type model struct {
	messages map[string]*modelled
	token    int64

	queue   *Queue
	client  *redis.Client
	workers []*worker
	claimed []*Delivery // ever
}

func now() int64 { return time.Now().UnixMilli() }

// after returns the due time of a message that waits for d from now.
func after(d time.Duration) int64 {
	if d == 0 {
		return now()
	}
	return (time.Now().UnixMicro()+999)/1000 + ceilMillis(d)
}

// put puts a message into a place.
func (m *modelled) put(place string, at int64) { m.place, m.at = place, at }

// in returns the ids in a place with scores up to a limit, in order.
func (m *model) in(place string, most int64) []string {
	ids := slices.DeleteFunc(slices.Collect(maps.Keys(m.messages)), func(id string) bool {
		return m.messages[id].place != place || m.messages[id].at > most
	})
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.messages[a].at, m.messages[b].at), cmp.Compare(a, b))
	})
	return ids
}

// do applies an operation to the queue and to the model, and returns the difference of
// their replies.
func (m *model) do(ctx context.Context, o operation) error {
	id := "m" + strconv.Itoa(o.A%4)
	known := m.messages[id]
	place := ""
	if known != nil {
		place = known.place
	}
	if place == "leased" && known.at <= now() {
		place = "due" // its worker has not settled it
	}
	switch o.What {
	case "pass":
		time.Sleep(o.Instant)
		return nil
	case "put":
		_, err := m.queue.Put(ctx, Message{ID: id, Payload: []byte(id), Delay: o.Instant})
		if known != nil {
			return differ(err, ErrDuplicate)
		}
		known = &modelled{due: after(o.Instant)}
		known.put("due", known.due)
		m.messages[id] = known
		return err
	case "move":
		err := m.queue.MoveIn(ctx, id, o.Instant)
		if place == "due" {
			known.due = after(o.Instant)
			known.put("due", known.due)
		}
		return differ(err, map[string]error{"": ErrNotFound, "leased": ErrLeased, "dead": ErrDead}[place])
	case "cancel":
		err := m.queue.Cancel(ctx, id)
		if place != "leased" {
			delete(m.messages, id)
		}
		return differ(err, map[string]error{"": ErrNotFound, "leased": ErrLeased}[place])
	case "revive":
		revived, err := m.queue.Revive(ctx, id)
		if place == "dead" {
			known.attempt, known.token, known.due = 0, 0, now()
			known.put("due", known.due)
			revived--
		}
		if revived != 0 {
			return errors.New("revived another number")
		}
		return err
	case "claim":
		return m.claim(m.workers[o.B], o.A/2)
	}
	if len(m.claimed) == 0 {
		return nil
	}
	// Mostly of the latest claims, sometimes of old ones.
	d := m.claimed[max(0, len(m.claimed)-1-o.A)]
	if o.What == "renew" {
		return m.renew(ctx, d)
	}
	return m.say(Outcome(slices.Index(outcomeNames[:], o.What)), d, o.Instant)
}

func differ(got, want error) error {
	if errors.Is(got, want) {
		return nil
	}
	return fmt.Errorf("got %q, want %q", fmt.Sprint(got), fmt.Sprint(want))
}

func (m *model) claim(w *worker, limit int) error {
	for _, id := range m.in("dead", now()-modelKept.Milliseconds()) {
		delete(m.messages, id)
	}
	for _, id := range m.in("leased", now()) {
		if known := m.messages[id]; known.attempt >= modelAttempts {
			known.put("dead", now())
		} else {
			known.put("due", known.due)
		}
	}
	c, err := w.claim(limit)
	if err != nil {
		return err
	}
	want := m.in("due", now())
	want = slices.DeleteFunc(want[:min(limit, len(want))], func(id string) bool {
		known := m.messages[id]
		exhausted := known.attempt >= modelAttempts // it was moved after its last lease
		if exhausted {
			known.put("dead", now())
		}
		return exhausted
	})
	if got := ids(c.deliveries); !slices.Equal(got, want) {
		return fmt.Errorf("claimed %v, want %v", got, want)
	}
	for _, d := range c.deliveries {
		known := m.messages[d.ID]
		known.attempt++
		if d.Attempt != known.attempt || d.Token <= m.token || d.Due.UnixMilli() != known.due || string(d.Payload) != d.ID {
			return fmt.Errorf("claimed %+v, want %+v and a token above %d", d, known, m.token)
		}
		known.token, m.token = d.Token, d.Token
		known.put("leased", now()+modelTTL.Milliseconds())
		m.claimed = append(m.claimed, d)
	}
	return m.nextLook(c.pause)
}

// nextLook checks the pause until the worker's next poll.
func (m *model) nextLook(pause time.Duration) error {
	var scores []int64
	for _, known := range m.messages {
		if known.place != "dead" {
			scores = append(scores, known.at)
		}
	}
	want := -time.Microsecond
	if len(scores) > 0 {
		want = max(0, time.Until(time.UnixMilli(slices.Min(scores))).Truncate(time.Microsecond))
	}
	if pause != want {
		return fmt.Errorf("look again after %v, want %v", pause, want)
	}
	return nil
}

func (m *model) say(as Outcome, d *Delivery, d2 time.Duration) error {
	known, want := m.messages[d.ID], int64(1)
	switch {
	case known == nil || known.token != d.Token:
		want = 0
	case as == Done:
		delete(m.messages, d.ID)
	case known.place != "leased":
		want = 2
	case as == Retried:
		known.due = after(d2)
		known.put("due", known.due)
	case as == Buried:
		known.put("dead", now())
	default:
		known.attempt--
		known.put("due", known.due)
	}
	got, err := m.queue.settler.settle(settlement{Delivery: d, as: as, after: ceilMillis(d2), err: "failed"})
	if err == nil && got != want {
		err = fmt.Errorf("%v of %s is answered by %d, want %d", as, d.ID, got, want)
	}
	return err
}

func (m *model) renew(ctx context.Context, d *Delivery) error {
	known, want := m.messages[d.ID], int64(0)
	switch {
	case known == nil || known.place != "leased":
	case known.token != d.Token:
		want = -1
	case known.at > now():
		want = 1
		known.put("leased", now()+modelTTL.Milliseconds())
	}
	reply, err := leases{m.queue}.send(ctx, d.ID, strconv.FormatInt(d.Token, 10), modelTTL.Milliseconds())
	if err != nil {
		return err
	}
	if reply[0] != want {
		return fmt.Errorf("renewal of %s is answered by %v, want %d", d.ID, reply[0], want)
	}
	return nil
}

// compare returns how the server's state differs from the model's.
func (m *model) compare(ctx context.Context) error {
	found := 0
	for i, place := range []string{"due", "leased", "dead"} {
		for _, z := range m.client.ZRangeWithScores(ctx, m.queue.keys[i], 0, -1).Val() {
			found++
			known := m.messages[z.Member.(string)]
			if known == nil || known.place != place || known.at != int64(z.Score) {
				return fmt.Errorf("%v is %s at %v, want %+v", z.Member, place, int64(z.Score), known)
			}
		}
	}
	for _, n := range []int64{
		int64(found), m.client.HLen(ctx, m.queue.keys[3]).Val(), m.client.HLen(ctx, m.queue.keys[4]).Val(),
	} {
		if n != int64(len(m.messages)) {
			return fmt.Errorf("%d messages, or parts of them, want %d", n, len(m.messages))
		}
	}
	return m.compareList(ctx)
}

// compareList returns how the list of all messages differs from the model's.
func (m *model) compareList(ctx context.Context) error {
	var want, got []string
	ended := len(m.in("leased", now()))
	for _, id := range slices.Concat(m.in("leased", now()), m.in("due", math.MaxInt64), m.in("leased", math.MaxInt64)[ended:], m.in("dead", math.MaxInt64)) {
		known := m.messages[id]
		state := map[string]State{"dead": Dead, "leased": Leased, "due": Delayed}[known.place]
		if known.place != "dead" && known.at <= now() {
			state = Ready
		}
		want = append(want, fmt.Sprint(id, " ", state))
	}
	for info, err := range m.queue.List(ctx, ListOptions{}) {
		if err != nil {
			return err
		}
		got = append(got, fmt.Sprint(info.ID, " ", info.State))
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("listed %v, want %v", got, want)
	}
	return nil
}

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(operations(), 1, 80).Draw(rt, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = follow(t, steps) })
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// follow takes the steps on a new queue, and returns the first difference.
func follow(t *testing.T, steps []operation) error {
	server := locktest.Start(t)
	store := server.Store(t)
	q, err := New(store, "mails", Config{Retention: modelKept})
	if err != nil {
		return err
	}
	m := &model{messages: make(map[string]*modelled), queue: q, client: server.Client(t)}
	for i := range 3 {
		w := claimant(t, q, strconv.Itoa(i))
		w.config.TTL, w.config.MaxAttempts = modelTTL, modelAttempts
		m.workers = append(m.workers, w)
	}
	for i, o := range steps {
		if err := m.do(t.Context(), o); err != nil {
			return fmt.Errorf("step %d, %+v: %w", i, o, err)
		}
		if err := m.compare(t.Context()); err != nil {
			return fmt.Errorf("after step %d, %+v: %w", i, o, err)
		}
	}
	return nil
}
