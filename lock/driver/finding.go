package driver

import (
	"context"
	"time"
)

// Checker is a [Store] that can examine its servers.
type Checker interface {
	// Check looks for what breaks, or may break, a promise of the locks. It acquires no
	// lock and leaves nothing behind. It returns an error if no server could be examined.
	Check(ctx context.Context, o CheckOptions) (Report, error)
}

// CheckOptions are what a check compares a store with. The zero value is ready to use.
type CheckOptions struct {
	// TTL is the shortest TTL of the locks. Default: that of package lock.
	TTL time.Duration
	// Name is the name of a lock that the program uses, or the beginning of one. The
	// rights of the user are tried on names that begin with it. Default: a name that
	// belongs to the check.
	Name string
}

// Report is the result of a check.
type Report struct {
	// Servers are the examined servers that answered.
	Servers []Server
	// Findings are what was found, the most severe first. A healthy store has none.
	Findings []Finding
}

// Server is a server that answered a check. Fields that it does not reveal are zero.
type Server struct {
	Address string
	ID      string // of this run of the server
	Version string // with the product's name, as "redis 7.0.15"
	Role    string // "master" or "replica"
	// RoundTrip and WorstRoundTrip are the median and the maximum of a few round trips.
	RoundTrip, WorstRoundTrip time.Duration
	// Ahead is by how much its clock is ahead of this process's, give or take
	// AheadError. It is unknown if AheadError is zero.
	Ahead, AheadError time.Duration
}

// Finding is one thing that a check has found.
type Finding struct {
	Severity Severity
	// Server is the address of the server. It is empty for a finding about all of them.
	Server string
	// Topic is what was examined, in one word such as "eviction".
	Topic string
	// Found is what is so, Promise the promise that it breaks and how, Advice what to do.
	Found, Promise, Advice string
}

// Severity is how much a [Finding] matters.
type Severity uint8

const (
	// SeverityNote is for a limit of the setup, or for what could not be examined.
	SeverityNote Severity = iota
	// SeverityWarning is for what breaks a promise after a further fault.
	SeverityWarning
	// SeverityError is for what breaks a promise now.
	SeverityError
)

func (s Severity) String() string {
	switch s {
	case SeverityNote:
		return "note"
	case SeverityWarning:
		return "warning"
	case SeverityError:
		return "error"
	}
	return "unknown"
}
