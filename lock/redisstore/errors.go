package redisstore

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// The faults that a server reports. Each is the Fault of a [ServerError], which matches
// it in errors.Is. Those marked "may pass" also match [driver.ErrUnavailable], and are
// retried for a while.
var (
	// ErrReadOnly is READONLY; may pass: a failover may be under way.
	ErrReadOnly = errors.New("the server is a read-only replica")
	// ErrLoading is LOADING; may pass.
	ErrLoading = errors.New("the server is still loading its data")
	// ErrBusy is BUSY; may pass.
	ErrBusy = errors.New("the server is busy with a slow script")
	// ErrNoReplicas is NOREPLICAS; may pass.
	ErrNoReplicas = errors.New("the server has too few replicas to accept writes")
	// ErrCluster is CLUSTERDOWN, MASTERDOWN, TRYAGAIN, MOVED or ASK; may pass.
	ErrCluster = errors.New("the cluster cannot serve the slot just now")
	// ErrMaxClients is the refusal of a connection; may pass.
	ErrMaxClients = errors.New("the server accepts no more connections")
	// ErrOutOfMemory is OOM.
	ErrOutOfMemory = errors.New("the server is out of memory")
	// ErrMisconfigured is MISCONF.
	ErrMisconfigured = errors.New("the server cannot save its data and refuses writes")
	// ErrAuth is NOAUTH or WRONGPASS.
	ErrAuth = errors.New("the server does not accept the credentials")
	// ErrCredentials is an error of [ClientConfig.Credentials]; may pass.
	ErrCredentials = errors.New("the client has no credentials")
	// ErrNoPermission is NOPERM, also from within a script.
	ErrNoPermission = errors.New("the user lacks a permission")
	// ErrWrongType is WRONGTYPE.
	ErrWrongType = errors.New("a key holds another kind of value")
	// ErrTooOld is the refusal of a command, or of one of its options, that the scripts
	// use and an old server lacks.
	ErrTooOld = errors.New("the server is too old")
	// ErrCrossSlot is CROSSSLOT.
	ErrCrossSlot = errors.New("the lock's keys are not in one slot")
	// ErrDamaged is for a fencing counter that is no whole number from 0 to 2^53. Until
	// it is repaired no lock of that name is granted, since tokens would not grow.
	ErrDamaged = errors.New("the lock's fencing counter is damaged")
)

// fault describes a class of refusals.
type fault struct {
	err     error
	passing bool // may pass by itself
	// midway: the request may have been carried out, at least in part. A redirect is
	// midway: go-redis follows it, and leaves it as the command's error if the second
	// attempt gets no answer.
	midway bool
	ofKey  bool // one key of a run may be the reason
	advice string
}

// faults by the first word of the refusal.
var faults = map[string]fault{
	"READONLY":    {err: ErrReadOnly, passing: true, advice: "a failover may be under way; otherwise connect to the master, by sentinel or cluster"},
	"LOADING":     {err: ErrLoading, passing: true, advice: "wait until it is ready"},
	"BUSY":        {err: ErrBusy, passing: true, advice: "SCRIPT KILL ends the script if it has written nothing"},
	"NOREPLICAS":  {err: ErrNoReplicas, passing: true, advice: "bring its replicas back, or lower min-replicas-to-write"},
	"CLUSTERDOWN": {err: ErrCluster, passing: true, advice: "it recovers once every slot has a master"},
	"MASTERDOWN":  {err: ErrCluster, passing: true, advice: "the replica has lost its master; connect to a master"},
	"TRYAGAIN":    {err: ErrCluster, ofKey: true, passing: true, advice: "the slot is being moved"},
	"MOVED":       {err: ErrCluster, passing: true, midway: true, advice: "connect to a cluster with redis-cluster:// or a ClusterClient"},
	"ASK":         {err: ErrCluster, passing: true, midway: true, advice: "connect to a cluster with redis-cluster:// or a ClusterClient"},
	"OOM":         {err: ErrOutOfMemory, advice: "raise maxmemory or free memory; held locks can still be renewed and released"},
	"MISCONF":     {err: ErrMisconfigured, advice: "its log has the reason; often the disk is full"},
	"NOAUTH":      {err: ErrAuth, advice: "give a user and a password"},
	"WRONGPASS":   {err: ErrAuth, advice: "check the user and the password"},
	"NOPERM":      {err: ErrNoPermission, ofKey: true, midway: true, advice: "give the user the commands, keys and channels that locks need"},
	"WRONGTYPE":   {err: ErrWrongType, ofKey: true, midway: true, advice: "another program, or another family of locks, uses the key"},
	"DAMAGED":     {err: ErrDamaged, ofKey: true, advice: "find the client that wrote it; then set it to the largest token that the guarded resources have accepted, or delete it"},
	"CROSSSLOT":   {err: ErrCrossSlot, ofKey: true, advice: "choose a name without lone braces"},
}

// ServerError is a server's refusal, or a missing answer.
type ServerError struct {
	// Fault is the class of the refusal, one of this package's errors. It is nil if there
	// was no answer, or one of no known class.
	Fault error
	// Err is what go-redis reported.
	Err error

	passing bool
	ofKey   bool // one key of the run may be the reason
	done    bool // the request may have been carried out, at least in part
	advice  string
}

func (e *ServerError) Error() string {
	switch {
	case e.Fault != nil:
		return fmt.Sprintf("redis: %v (%v): %s", e.Fault, e.Err, e.advice)
	case e.passing:
		return fmt.Sprintf("redis: no answer from the server: %v", e.Err)
	default:
		return fmt.Sprintf("redis: %v", e.Err)
	}
}

// Is matches the fault, and the errors of package lock by which it decides on retries.
func (e *ServerError) Is(target error) bool {
	switch target {
	case nil:
		return false
	case driver.ErrUnavailable:
		return e.passing
	case driver.ErrNotDone:
		return !e.done
	}
	return target == e.Fault
}

// Unwrap returns what go-redis reported.
func (e *ServerError) Unwrap() error { return e.Err }

// refusal is the text of a server's error that a script returned as data.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError makes refusal a [redis.Error].
func (refusal) RedisError() {}

// ofOneKey reports whether one key may be the reason why the server refused a run.
func ofOneKey(err error) bool {
	var e *ServerError
	return errors.As(err, &e) && e.ofKey
}

// classify turns an error of go-redis into a *ServerError.
func classify(err error) error {
	if err == nil {
		return nil
	}
	var refused redis.Error
	if errors.As(err, &refused) {
		f := faultOf(refused.Error())
		return &ServerError{Fault: f.err, Err: err, passing: f.passing, ofKey: f.ofKey, done: f.err == nil || f.midway, advice: f.advice}
	}
	if failed, ok := errors.AsType[*credentialsError](err); ok {
		return &ServerError{Fault: ErrCredentials, Err: failed.err, passing: true, advice: "the next connection asks for them again"}
	}
	closed := errors.Is(err, redis.ErrClosed)
	var op *net.OpError
	unsent := closed || errors.Is(err, redis.ErrPoolTimeout) || errors.As(err, &op) && op.Op == "dial"
	return &ServerError{Err: err, passing: !closed, done: !unsent}
}

// place matches what servers before Redis 7 put before the refusal of a command within a
// script.
var place = regexp.MustCompile(`^(?:ERR Error running script \(call to f_\w+\): )?(?:@\w+: ?\d+: )+-?`)

// faultOf returns the class of a refusal. Some refusals have no distinctive first word:
// ACL failures within a script, a full server, wrong credentials of old servers.
func faultOf(text string) fault {
	text = text[len(place.FindString(text)):]
	word, rest, _ := strings.Cut(text, " ")
	if f, known := faults[word]; known {
		return f
	}
	switch {
	case strings.Contains(rest, "DAMAGED "): // from our own scripts, which cannot set the first word
		return faults["DAMAGED"]
	case strings.HasPrefix(rest, "max number of clients"):
		return fault{err: ErrMaxClients, passing: true, advice: "raise maxclients, or let clients share connections"}
	case strings.Contains(rest, "ACL failure in script"), strings.Contains(rest, "user executing the script can't"):
		return faults["NOPERM"]
	case strings.HasPrefix(rest, "Protocol error: unauthenticated"): // the request is too long before authentication
		return faults["NOAUTH"]
	case tooOld(text):
		return fault{err: ErrTooOld, midway: true, advice: "locks need Redis 6.2 or newer, or a server that is compatible with it"}
	case strings.HasPrefix(rest, "invalid password"), strings.HasPrefix(rest, "AUTH "), strings.HasPrefix(rest, "Client sent AUTH"):
		return faults["WRONGPASS"]
	}
	return fault{ofKey: true}
}

// tooOld reports whether a refusal is for a script's command that the server does not
// know in this form. The scripts make no syntax errors, so the server is old.
func tooOld(text string) bool {
	return strings.HasSuffix(strings.TrimSpace(text), "syntax error") || // Redis 5 ends it with a space
		strings.Contains(text, "Unknown Redis command called from") ||
		strings.Contains(text, "Wrong number of args calling Redis command")
}

// silent reports whether the error is a missing answer.
func silent(err error) bool {
	e, ok := errors.AsType[*ServerError](err)
	return ok && e.Fault == nil && e.passing
}
