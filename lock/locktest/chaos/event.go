package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/redisstore"
	"github.com/leasewheel/leasewheel/renewal"
)

// The kinds of event.
const (
	evCall      = "call"       // a driver is about to acquire, or to put
	evGot       = "got"        // it was granted
	evFail      = "fail"       // it was not
	evValid     = "valid"      // the lease was valid at the instant At
	evEnd       = "end"        // the driver is about to release; At is the last instant of validity
	evLost      = "lost"       // a lease that ended at N is lost, or its driver does not wait for that any more
	evReleased  = "released"   // the release has returned
	evInner     = "inner"      // the release of a further hold has returned
	evTwice     = "twice"      // a deferred function was called more than once
	evPut       = "put"        // a message is about to be put; N is its number
	evAccepted  = "accepted"   // the Put has returned nil
	evBegin     = "begin"      // a handler has begun with message N
	evStopped   = "stopped"    // it has returned; At is the last instant at which the lease was valid
	evContext   = "context"    // its context had not ended at the instant At
	evHandled   = "handled"    // it was reported Done
	evRefused   = "refused"    // the name is not accepted
	evReady     = "ready"      // the process has begun
	evFinished  = "finished"   // every driver has ended
	evProbed    = "probed"     // every lock was acquired once more
	evClosed    = "closed"     // everything was closed
	evLag       = "lag"        // a timer of the process was N ns late
	evTrouble   = "trouble"    // the process has failed to do what the bench needs
	evRoundTrip = "round trip" // a round trip to a node that has nothing to do with the library took N ns
)

// event is one line that a worker process writes. Only the call of an operation has the
// fields that describe it.
type event struct {
	What string  `json:"w"`
	At   instant `json:"t"`
	Op   int64   `json:"o,omitempty"`

	Kind   kind          `json:"k,omitempty"`
	Name   string        `json:"n,omitempty"`
	Verb   string        `json:"v,omitempty"`
	TTL    time.Duration `json:"ttl,omitempty"`
	Within time.Duration `json:"in,omitempty"` // how long it may wait; 0: no limit
	N      int64         `json:"c,omitempty"`
	Node   int           `json:"nd,omitempty"`

	Token  int64         `json:"f,omitempty"`
	Owner  string        `json:"ow,omitempty"`
	Fixed  bool          `json:"fx,omitempty"`
	Lost   renewal.Cause `json:"l,omitempty"` // why the lease was lost; 0: it was not
	Errors []string      `json:"e,omitempty"` // the classes that an error matches
	Text   string        `json:"x,omitempty"`
}

// writeTo returns a function that writes events, each in one write, so that a killed process
// leaves whole lines.
func writeTo(out io.Writer) func(event) {
	var mu sync.Mutex
	return func(e event) {
		if e.At == 0 {
			e.At = now()
		}
		line, err := json.Marshal(e)
		if err != nil {
			panic(err)
		}
		mu.Lock()
		defer mu.Unlock()
		_, _ = out.Write(append(line, '\n'))
	}
}

// classes are the errors that checkers distinguish.
var classes = []struct {
	name string
	err  error
}{
	{"not acquired", lock.ErrNotAcquired},
	{"foreign", lock.ErrForeign},
	{"unavailable", lock.ErrUnavailable},
	{"lost", lock.ErrLost},
	{"closed", lock.ErrClosed},
	{"not held", lock.ErrNotHeld},
	{"not done", lock.ErrNotDone},
	{"upgrade", lock.ErrUpgrade},
	{"cancelled", lock.ErrCancelled},
	{"overflow", lock.ErrOverflow},
	{"deadline", context.DeadlineExceeded},
	{"context", context.Canceled},
	{"read only", redisstore.ErrReadOnly},
	{"loading", redisstore.ErrLoading},
	{"busy", redisstore.ErrBusy},
	{"no replicas", redisstore.ErrNoReplicas},
	{"cluster", redisstore.ErrCluster},
	{"out of memory", redisstore.ErrOutOfMemory},
	{"no permission", redisstore.ErrNoPermission},
	{"wrong type", redisstore.ErrWrongType},
	{"cross slot", redisstore.ErrCrossSlot},
	{"duplicate", delayqueue.ErrDuplicate},
	{"invalid", delayqueue.ErrInvalid},
	{"interrupted", errInterrupted},
}

// errInterrupted ends the waits of drivers that give up.
var errInterrupted = errors.New("chaos: interrupted")

// classify returns the names of all classes that err matches.
func classify(err error) (names []string, text string) {
	if err == nil {
		return nil, ""
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			names = append(names, c.name)
		}
	}
	if _, ok := errors.AsType[*lock.NameError](err); ok {
		names = append(names, "name")
	}
	return append(names, "error"), err.Error()
}

// lossOf returns the cause of a loss, or 0 if there was none.
func lossOf(err error) renewal.Cause {
	if lost, ok := errors.AsType[*lock.LostError](err); ok {
		return lost.Cause
	}
	return 0
}
