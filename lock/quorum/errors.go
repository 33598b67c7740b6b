package quorum

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Said is a node's reply to a request.
type Said uint8

const (
	// Silent: no reply by the instant at which the others had decided.
	Silent Said = iota
	// Done: the node has carried out the request: granted, released, subscribed.
	Done
	// Refused: another owner holds the lock there.
	Refused
	// NotHeld: the owner does not hold the lock there.
	NotHeld
	// Failed: an error, of the node's own or for lack of a reply in time. It counts as no
	// vote.
	Failed

	saids = iota
)

var saidNames = [saids]string{"silent", "done", "refused", "not held", "failed"}

func (s Said) String() string {
	if s >= saids {
		return fmt.Sprintf("Said(%d)", uint8(s))
	}
	return saidNames[s]
}

// Vote is one node's reply, and its reason.
type Vote struct {
	// Node is the node's index among the stores that were passed to [New], from 0.
	Node int
	Said Said
	// TTL is, with Refused, the remaining TTL of the present holder's lease there; zero
	// if unknown.
	TTL time.Duration
	// Err is, with Failed, the node's error.
	Err error
}

func (v Vote) String() string {
	switch {
	case v.Said == Failed:
		return fmt.Sprintf("node %d: %v", v.Node, v.Err)
	case v.Said == Refused && v.TTL > 0:
		return fmt.Sprintf("node %d: refused, held by another owner (TTL %v)", v.Node, v.TTL.Round(time.Millisecond))
	default:
		return fmt.Sprintf("node %d: %v", v.Node, v.Said)
	}
}

// Error reports that no majority of the nodes has carried out a request. Votes has the
// vote of each. Refusals are no error if a majority has answered: then the answer is
// [driver.Refused].
//
// It matches [driver.ErrUnavailable] unless the nodes that failed for a lasting reason, or those
// where other owners hold the lock, exclude a majority. It matches [driver.ErrNotDone] if
// certainly no node has done anything. It also matches everything that a node's error
// matches, and errors.As finds the nodes' errors in it.
type Error struct {
	// Request is the request's name: "acquire", "release" and so on.
	Request string
	// Name is the lock's name, or the client's id.
	Name string
	// Majority is how many nodes are needed.
	Majority int
	// Votes are the votes of all nodes, in the order of the nodes.
	Votes []Vote
	// Cause is why the votes were not waited for, or not valid: the context's end, a
	// grant that took too long. Nil: the votes alone decided.
	Cause error
}

func (e *Error) Error() string {
	done := 0
	said := make([]string, len(e.Votes))
	for i, v := range e.Votes {
		if v.Said == Done {
			done++
		}
		said[i] = v.String()
	}
	text := fmt.Sprintf("quorum: %s %q: done by %d of %d nodes, %d are needed (%s)",
		e.Request, e.Name, done, len(e.Votes), e.Majority, strings.Join(said, "; "))
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Is reports whether the votes match target; see [Error].
func (e *Error) Is(target error) bool {
	switch target {
	case driver.ErrUnavailable:
		return e.mayPass() && !errors.Is(e.Cause, ErrSameServer)
	case driver.ErrNotDone:
		return e.nothingDone()
	}
	return slices.ContainsFunc(e.causes(), func(err error) bool { return errors.Is(err, target) })
}

// As finds a node's error.
func (e *Error) As(target any) bool {
	return slices.ContainsFunc(e.causes(), func(err error) bool { return errors.As(err, target) })
}

// causes returns the cause and the nodes' errors, or nil for each.
func (e *Error) causes() []error {
	all := []error{e.Cause}
	for _, v := range e.Votes {
		all = append(all, v.Err)
	}
	return all
}

// mayPass reports whether neither lasting failures alone nor other owners alone exclude a majority.
func (e *Error) mayPass() bool {
	lasting, against := 0, 0
	for _, v := range e.Votes {
		switch {
		case v.Said == Refused || v.Said == NotHeld:
			against++
		case v.Said == Failed && !errors.Is(v.Err, driver.ErrUnavailable):
			lasting++
		}
	}
	return max(lasting, against) <= len(e.Votes)-e.Majority
}

func (e *Error) nothingDone() bool {
	return !slices.ContainsFunc(e.Votes, func(v Vote) bool {
		return v.Said == Done || v.Said == Silent || v.Said == Failed && !errors.Is(v.Err, driver.ErrNotDone)
	})
}

// ErrSameServer is matched by the error of an acquisition that has detected that two
// nodes of the quorum are one server under two names.
var ErrSameServer = errors.New("one server under two names: accepted are servers that fail independently of each other")

// errNoAnswer is the error of a node that reports no outcome and no error.
var errNoAnswer = fmt.Errorf("no answer: %w", driver.ErrUnavailable)

// errNotGranted is the error of a node that has lost a grant before its token was raised.
var errNotGranted = fmt.Errorf("it does not have the lock any more: %w", driver.ErrUnavailable)

// notRaised is the error of a node whose token was not raised. Its text is made where it is read, as
// that of a panic.
type notRaised struct{ error }

func (e notRaised) Error() string { return "its fencing token was not raised: " + e.error.Error() }
func (e notRaised) Unwrap() error { return e.error }
