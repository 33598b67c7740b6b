// Package fault classifies what servers refuse, and missing answers.
package fault

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/panics"
)

// The faults that a server reports, as package redisstore exports and describes them.
var (
	ErrReadOnly      = errors.New("the server is a read-only replica")
	ErrLoading       = errors.New("the server is still loading its data")
	ErrBusy          = errors.New("the server is busy with a slow script")
	ErrNoReplicas    = errors.New("the server has too few replicas to accept writes")
	ErrCluster       = errors.New("the cluster cannot serve the slot just now")
	ErrMaxClients    = errors.New("the server accepts no more connections")
	ErrOutOfMemory   = errors.New("the server is out of memory")
	ErrMisconfigured = errors.New("the server cannot save its data and refuses writes")
	ErrAuth          = errors.New("the server does not accept the credentials")
	ErrCredentials   = errors.New("the client has no credentials")
	ErrNoPermission  = errors.New("the user lacks a permission")
	ErrWrongType     = errors.New("a key holds another kind of value")
	ErrTooOld        = errors.New("the server is too old, or hides a command")
	ErrCrossSlot     = errors.New("the lock's keys are not in one slot")
	ErrDamaged       = errors.New("the lock's fencing counter is damaged")
	ErrUnreplicated  = errors.New("too few replicas have the lock")
)

// faults are the classes of refusals, by the first word. They have no Err.
var faults = map[string]Error{
	"READONLY":    {Fault: ErrReadOnly, passing: true, advice: "a failover may be under way; otherwise connect to the master, by sentinel or cluster"},
	"UNBLOCKED":   {Fault: ErrReadOnly, passing: true, done: true, advice: "it became a replica while a grant waited for replicas"},
	"LOADING":     {Fault: ErrLoading, passing: true, advice: "wait until it is ready"},
	"BUSY":        {Fault: ErrBusy, passing: true, advice: "SCRIPT KILL ends the script if it has written nothing"},
	"NOREPLICAS":  {Fault: ErrNoReplicas, passing: true, advice: "bring its replicas back, or lower min-replicas-to-write"},
	"CLUSTERDOWN": {Fault: ErrCluster, passing: true, advice: "it recovers once every slot has a master"},
	"MASTERDOWN":  {Fault: ErrCluster, passing: true, advice: "the replica has lost its master; connect to a master"},
	"TRYAGAIN":    {Fault: ErrCluster, ofKey: true, passing: true, advice: "the slot is being moved"},
	"MOVED":       {Fault: ErrCluster, passing: true, done: true, advice: "connect to a cluster with redis-cluster:// or a ClusterClient"},
	"ASK":         {Fault: ErrCluster, passing: true, done: true, advice: "connect to a cluster with redis-cluster:// or a ClusterClient"},
	"OOM":         {Fault: ErrOutOfMemory, advice: "raise maxmemory or free memory; held locks can still be renewed and released"},
	"MISCONF":     {Fault: ErrMisconfigured, advice: "its log has the reason; often the disk is full"},
	"NOAUTH":      {Fault: ErrAuth, advice: "give a user and a password"},
	"WRONGPASS":   {Fault: ErrAuth, advice: "check the user and the password"},
	"NOPERM":      {Fault: ErrNoPermission, ofKey: true, done: true, advice: "give the user what `leasewheel acl` prints; `leasewheel doctor` finds what is missing"},
	"WRONGTYPE":   {Fault: ErrWrongType, ofKey: true, done: true, advice: "another program, or another family of locks, uses the key"},
	"DAMAGED":     {Fault: ErrDamaged, ofKey: true, advice: "find the client that wrote it; then set it to the largest token that the guarded resources have accepted, or delete it"},
	"DENIED":      {advice: "the server is in protected mode: give it a password"},
	"CROSSSLOT":   {Fault: ErrCrossSlot, ofKey: true, advice: "choose a name without lone braces"},
}

// Error is a server's refusal, or a missing answer.
type Error struct {
	// Fault is the class of the refusal, one of this package's errors. It is nil if there
	// was no answer, or one of no known class.
	Fault error
	// Err is what go-redis reported.
	Err error

	passing bool // it may pass by itself
	ofKey   bool // one key of the run may be the reason
	// done is set if the request may have been carried out, at least in part. So it is for a
	// redirect: go-redis follows it, and leaves it as the command's error if the second
	// attempt gets no answer.
	done   bool
	advice string
}

func (e *Error) Error() string {
	reported, _, _ := strings.Cut(e.Err.Error(), ", with args") // of an unknown command: those of AUTH are a secret
	reported = strings.ReplaceAll(reported, "\n", "; ")         // between the errors of sentinels
	switch {
	case e.Fault != nil:
		return fmt.Sprintf("redis: %v (%s): %s", e.Fault, reported, e.advice)
	case e.passing:
		return "redis: no answer from the server: " + reported
	case e.advice != "":
		return fmt.Sprintf("redis: %s: %s", strings.TrimPrefix(reported, "redis: "), e.advice)
	default:
		return "redis: " + reported
	}
}

// Is matches the fault, and the errors of package lock by which it decides on retries.
func (e *Error) Is(target error) bool {
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
func (e *Error) Unwrap() error { return e.Err }

// Refusal is the text of a server's error that a script returned as data.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// RedisError makes a Refusal a [redis.Error].
func (Refusal) RedisError() {}

// OfOneKey reports whether one key may be the reason why the server refused a run.
func OfOneKey(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.ofKey
}

// several is the errors of all sentinels. One that does not answer may know the master, though
// the others refuse.
type several interface {
	error
	Unwrap() []error
}

// Classify turns an error of go-redis into an *Error.
func Classify(err error) error {
	if err == nil {
		return nil
	}
	if all, ok := errors.AsType[several](err); ok {
		for _, one := range all.Unwrap() {
			if e, ok := errors.AsType[*Error](Classify(one)); ok && e.passing {
				return &Error{Err: err, passing: true, done: e.done}
			}
		}
	}
	var refused redis.Error
	if errors.As(err, &refused) {
		f := classOf(refused.Error())
		if errors.Is(refused, redis.Nil) && err != error(refused) { //nolint:errorlint // what wraps it is the error of sentinels
			f = Error{advice: "no sentinel knows a master of this name: check master_name"}
		}
		f.Err = err
		return &f
	}
	if failed, ok := errors.AsType[*Credentials](err); ok {
		return &Error{Fault: ErrCredentials, Err: failed.Err, passing: true, advice: "the next connection asks for them again"}
	}
	if refused, ok := errors.AsType[*connectionError](err); ok {
		return Classify(Refusal(refused.reason))
	}
	closed := errors.Is(err, redis.ErrClosed)
	var op *net.OpError
	unsent := closed || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.As(err, &op) && op.Op == "dial"
	return &Error{Err: err, passing: !closed, done: !unsent}
}

// place matches what servers before Redis 7 put before the refusal of a command within a
// script.
var place = regexp.MustCompile(`^(?:ERR Error running script \(call to f_\w+\): )?(?:@\w+: ?\d+: )+-?`)

// Of returns the fault of a refusal, nil for one of no known class.
func Of(refusal string) error { return classOf(refusal).Fault }

// classOf returns the class of a refusal. Some refusals have no distinctive first word:
// failures within a script, a full server, wrong credentials of old servers.
func classOf(text string) Error {
	text = text[len(place.FindString(text)):]
	word, rest, _ := strings.Cut(text, " ")
	if f, known := faults[word]; known {
		return f
	}
	switch {
	case strings.Contains(rest, "DAMAGED "): // from our own scripts, which cannot set the first word
		return faults["DAMAGED"]
	case strings.HasPrefix(rest, "WAIT cannot be used with replica"): // between the grant and its WAIT
		return faults["UNBLOCKED"]
	case strings.HasPrefix(rest, "max number of clients"):
		return Error{Fault: ErrMaxClients, passing: true, advice: "raise maxclients, or let clients share connections"}
	case strings.Contains(rest, "ACL failure in script"), strings.Contains(rest, "user executing the script can't"):
		return faults["NOPERM"]
	case strings.Contains(rest, "access a non local key"): // which only the script names
		return Error{Fault: ErrCluster, ofKey: true, passing: true, done: true, advice: "the slot is being moved"}
	case strings.Contains(rest, "while the cluster is down"): // to a script, with cluster-allow-reads-when-down
		return faults["CLUSTERDOWN"]
	case strings.HasPrefix(rest, "Protocol error: unauthenticated"): // the request is too long before authentication
		return faults["NOAUTH"]
	case strings.HasPrefix(rest, "DB index is out of range"), strings.HasPrefix(rest, "SELECT is not allowed in cluster mode"):
		return Error{advice: "it has no database of this number: see its setting `databases`; a node of a cluster has 0 alone"}
	case strings.HasPrefix(rest, "This instance has cluster support disabled"):
		return Error{advice: "it is no node of a cluster: connect by redis://, or with a *redis.Client"}
	case strings.Contains(rest, "'maint_notifications'"): // in the handshake of a client with ModeEnabled
		return Error{advice: "it has no maintenance notifications: leave Mode of the client's MaintNotificationsConfig at ModeAuto"}
	case noSentinel.MatchString(rest):
		return Error{advice: "it is no sentinel: name the sentinels' port, or connect by redis:// to a server"}
	case tooOld(text):
		return Error{Fault: ErrTooOld, done: true, advice: "locks need Redis 6.2 or newer, or a server that is compatible with it; `leasewheel doctor` finds what is missing"}
	case strings.HasPrefix(rest, "invalid password"), strings.HasPrefix(rest, "AUTH "), strings.HasPrefix(rest, "Client sent AUTH"):
		return faults["WRONGPASS"]
	}
	return Error{ofKey: true, done: true}
}

// noSentinel matches the refusal of the command that only sentinels have.
var noSentinel = regexp.MustCompile("^unknown command ['`]sentinel")

// tooOld reports whether a refusal is for a command that the server does not know in this
// form. The scripts make no syntax errors, so the server is old.
func tooOld(text string) bool {
	text = strings.ReplaceAll(text, " Redis command", " command") // as Valkey has it
	return strings.HasPrefix(text, "ERR unknown command") ||
		strings.HasPrefix(strings.ToLower(text), "err unknown subcommand") ||
		strings.HasSuffix(strings.TrimSpace(text), "syntax error") || // Redis 5 ends it with a space
		strings.Contains(text, "Unknown command called from") ||
		strings.Contains(text, "Could not find scripting engine") || // Valkey, whose Lua is a module
		strings.Contains(text, "Wrong number of args calling command")
}

// Silent reports whether the error is a missing answer.
func Silent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Fault == nil && e.passing
}

// Credentials is the error of a source of credentials.
type Credentials struct{ Err error }

func (e *Credentials) Error() string { return e.Err.Error() }
func (e *Credentials) Unwrap() error { return e.Err }

// connectionError is the refusal of a connection. It is no [redis.Error], after which go-redis
// would go on.
type connectionError struct{ reason string }

func (e *connectionError) Error() string { return e.reason }

// OfConnection returns the error of a handshake: as one that ends it, if the server refuses the
// connection and not a command, or if the connection has no user. go-redis would keep that one, and
// requests would have it although there is a password by then.
func OfConnection(err error) error {
	switch {
	case redis.HasErrorPrefix(err, "max number of clients"), redis.HasErrorPrefix(err, "DENIED"):
		return &connectionError{err.Error()}
	case redis.HasErrorPrefix(err, "NOAUTH"):
		return &connectionError{"NOAUTH Authentication required."}
	}
	return err
}

// NoScript reports whether the server has no such script in its cache. SCRIPT FLUSH, a
// restart or a failover may empty the cache at any time.
func NoScript(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// Unexpected is the error for a reply that none of our scripts gives. It omits the reply,
// whose content is unknown.
func Unexpected(reply any) error {
	return fmt.Errorf("redisstore: unexpected reply of type %T from a script: a proxy may alter replies", reply)
}

// ErrPanicked is the error of a call of the client that has not returned, as after runtime.Goexit in
// a user's hook.
var ErrPanicked = errors.New("redisstore: the client panicked, or ended its goroutine")

// Protect calls the client where no caller would get its panic, as one of a user's hook.
func Protect(call func() error) error { return panics.Protect("redisstore: the client", call) }

// Passing is an error without a fault that may pass by itself. done is set if the request may
// have been carried out.
func Passing(err error, done bool) error { return &Error{Err: err, passing: true, done: done} }

// Granted turns the error of the WAIT behind a grant into an *Error. The server may have refused that
// alone, as one that a slow script keeps busy, or that has become a replica.
func Granted(err error) error {
	err = Classify(err)
	if e, ok := errors.AsType[*Error](err); ok {
		e.done = true
	}
	return err
}

// Unreplicated is the error of a grant that too few replicas have acknowledged in time.
func Unreplicated(err error) error {
	return &Error{Fault: ErrUnreplicated, Err: err, passing: true, done: true, advice: "bring its replicas back, or lower Config.Replicas"}
}

// Advice returns what to do about an error.
func Advice(e *Error) string { return e.advice }
