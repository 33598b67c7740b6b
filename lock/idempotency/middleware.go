package idempotency

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
	"github.com/leasewheel/leasewheel/lock/internal/logging"
)

// Config configures [New].
type Config struct {
	// Scope returns whose key it is, such as the account that was authenticated: the same key of
	// another scope is another key. Without it all clients share their keys, and one that knows
	// another's key and request gets its reply. A handler of several hosts includes r.Host: it is
	// not compared otherwise, since proxies change it. It may read the body, or the form.
	Scope func(r *http.Request) string

	// Optional lets requests without a key pass to the handler. Otherwise the answer is 400.
	Optional bool

	// Interrupted answers a request whose earlier attempt has left no reply: its process was
	// killed, it lost its lock, it panicked, its reply was not one to store, or the store of the
	// replies did not answer before its handler was called. nil is the handler itself.
	Interrupted http.Handler

	// Keep is how long a reply is stored; 24 h if 0.
	Keep time.Duration

	// MaxBody and MaxReply bound the bodies of requests and replies, in bytes; 1 MiB if 0.
	MaxBody, MaxReply int

	// Lock has the options of the lock. Its MaxHold ends a handler that hangs. Heartbeat is
	// refused: a handler has no lease to call Beat of.
	Lock lock.Options

	// Logger gets the causes of answers of 500 and 503, from goroutines of its own; none if nil.
	Logger *slog.Logger
}

// limit bounds the requests to Replies for one HTTP request, before and after the handler.
const limit = 5 * time.Second

// Attempt is one call of a handler.
type Attempt struct {
	// Key is the client's, without quotes. Only together with [Config.Scope] does it identify the
	// request.
	Key string
	// Token grows with each attempt at a key.
	Token int64
}

type attemptKey struct{}

// From returns the attempt to which the context of a handler belongs.
func From(ctx context.Context) (a Attempt, ok bool) {
	a, ok = ctx.Value(attemptKey{}).(Attempt)
	return a, ok
}

// New returns a middleware with locks of l, whose store must count fencing tokens. Processes
// that share keys need the same locks and replies. An error means that a value of c, or of its
// Lock, is out of range, or that l is closed.
func New(l *lock.Locker, replies Replies, c Config) (middleware func(next http.Handler) http.Handler, err error) {
	if c.Keep < 0 || c.MaxBody < 0 || c.MaxReply < 0 {
		return nil, errors.New("idempotency: Config.Keep, MaxBody or MaxReply is negative")
	}
	if c.Lock.Heartbeat != 0 {
		return nil, errors.New("idempotency: Config.Lock.Heartbeat does not suit a handler, which has no Lease to call Beat of; use Alive or MaxHold")
	}
	if l == nil || replies == nil {
		return nil, errors.New("idempotency: the locker or the replies are nil")
	}
	// An attempt whose context has ended examines the options and requests nothing.
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Mutex("idempotency").With(c.Lock).TryLock(ended); !errors.Is(err, context.Canceled) {
		return nil, fmt.Errorf("idempotency: %w", err)
	}
	c.Keep = cmp.Or(c.Keep, 24*time.Hour)
	c.MaxBody = cmp.Or(c.MaxBody, 1<<20)
	c.MaxReply = cmp.Or(c.MaxReply, 1<<20)
	c.Logger = logging.New(c.Logger).Logger
	return func(next http.Handler) http.Handler {
		return &handler{next: next, locker: l, replies: replies, config: c}
	}, nil
}

type handler struct {
	next    http.Handler
	locker  *lock.Locker
	replies Replies
	config  Config
}

// request is a request with a key.
type request struct {
	*http.Request
	key         string
	name        string // of the lock, and the record
	body        []byte
	fingerprint []byte
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && r.Method != http.MethodPatch {
		h.next.ServeHTTP(w, r)
		return
	}
	key, err := keyOf(r.Header)
	switch {
	case errors.Is(err, errMissing) && h.config.Optional:
		h.next.ServeHTTP(w, r)
	case err != nil:
		problem(http.StatusBadRequest, err.Error()).send(w)
	default:
		unread := cmp.Or[io.ReadCloser](r.Body, http.NoBody) // a request that a program made may have none
		body, err := io.ReadAll(http.MaxBytesReader(w, unread, int64(h.config.MaxBody)))
		h.answer(r, key, body, err).send(w)
	}
}

// answer returns the answer to a request with a key, whose body was read, perhaps with an error.
func (h *handler) answer(r *http.Request, key string, body []byte, err error) *reply {
	if err != nil {
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok { // an outer handler's limit may be the smaller one
			return problem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", large.Limit))
		}
		return problem(http.StatusBadRequest, "the body cannot be read")
	}
	name := hash([]byte(h.scope(r, body)), []byte(key))
	// Both targets: outer handlers change the URL, as http.StripPrefix does, and a test may have no other.
	fingerprint := hash([]byte(r.Method), []byte(r.RequestURI), []byte(r.URL.RequestURI()), body)
	q := &request{r, key, hex.EncodeToString(name), body, fingerprint}

	ctx, cancel := context.WithTimeout(r.Context(), limit)
	record, err := h.replies.Load(ctx, q.name)
	cancel()
	if err != nil {
		return h.unavailable(q, err)
	}
	if known := h.known(q, record); known != nil {
		return known
	}
	lease, err := h.locker.Mutex("idempotency:" + q.name).With(h.config.Lock).TryLock(r.Context())
	switch {
	case errors.Is(err, lock.ErrNotAcquired):
		return later(http.StatusConflict, "a request with this Idempotency-Key is in progress")
	case err != nil:
		return h.unavailable(q, err)
	}
	return h.hold(q, lease)
}

// scope returns whose key it is.
func (h *handler) scope(r *http.Request, body []byte) string {
	if h.config.Scope == nil {
		return ""
	}
	scoped, remove := withBody(r.Context(), r, body)
	defer remove()
	return h.config.Scope(scoped)
}

// withBody returns a copy of a request whose body was read, for another reader. remove removes
// the files of a form that is parsed with it: the server removes those of its own request alone.
func withBody(ctx context.Context, r *http.Request, body []byte) (_ *http.Request, remove func()) {
	c := r.WithContext(ctx)
	c.Body, c.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return c, func() {
		if form := c.MultipartForm; form != nil && form != r.MultipartForm {
			_ = form.RemoveAll()
		}
	}
}

// hash returns the hash of parts, each with its length.
func hash(parts ...[]byte) []byte {
	sum := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(sum, "%d:", len(part))
		sum.Write(part)
	}
	return sum.Sum(nil)
}

// known returns the answer to the request if its record has one, or nil.
func (h *handler) known(q *request, r Record) *reply {
	switch {
	case r.Token == 0:
		return nil
	case !bytes.Equal(r.Fingerprint, q.fingerprint):
		return problem(http.StatusUnprocessableEntity, "this Idempotency-Key was used for another request")
	case len(r.Reply) == 0:
		return nil
	}
	stored, err := decodeReply(r.Reply)
	if err != nil {
		h.config.Logger.Error("idempotency: no reply", "record", q.name, "error", err)
		return problem(http.StatusInternalServerError, "the stored reply is damaged")
	}
	stored.Headers.Set("Idempotent-Replayed", "true") // the handler may have set it
	return stored
}

// hold calls the handler under the lock, and returns the reply to send without it: a client may take
// long to receive it.
func (h *handler) hold(q *request, lease *lock.Lease) *reply {
	detached := context.WithoutCancel(q.Context())
	defer lease.Unlock(detached) //nolint:errcheck // the locker repeats a release that fails
	begun := Record{Token: lease.Token(), Fingerprint: q.fingerprint}
	if begun.Token == 0 {
		h.config.Logger.Error("idempotency: the store of the locks counts no fencing tokens")
		return problem(http.StatusInternalServerError, "requests with an Idempotency-Key cannot be served")
	}
	ctx, cancel := context.WithTimeout(detached, limit) // else a client that leaves interrupts an attempt
	var loaded, previous Record
	var err error
	if h.config.Interrupted != nil { // a store that has repeated the Swap returns begun
		loaded, err = h.replies.Load(ctx, q.name)
	}
	if err == nil {
		previous, err = h.replies.Swap(ctx, q.name, begun, h.config.Keep)
	}
	cancel()
	if err == nil {
		if known := h.known(q, previous); known != nil {
			return known
		}
		if !previous.Yields(begun) || !lease.Valid() { // the store was slow, or the process stood still
			err = cmp.Or(lease.Err(), lock.ErrLost)
		}
	}
	if err != nil {
		return h.unavailable(q, err)
	}

	next := h.next
	for _, r := range []Record{loaded, previous} {
		if r.Token != 0 && r.Token != begun.Token && h.config.Interrupted != nil {
			next = h.config.Interrupted
		}
	}
	inner, remove := withBody(context.WithValue(lease.Context(), attemptKey{}, Attempt{q.key, begun.Token}), q.Request, q.body)
	defer remove()
	answer := &reply{header: http.Header{}, limit: h.config.MaxReply}
	next.ServeHTTP(answer, inner)
	if answer.finish() {
		h.config.Logger.Error("idempotency: no reply", "record", q.name, "error", errReply)
	}
	if answer.final {
		if err := h.store(detached, q, lease, answer); err != nil {
			return h.unavailable(q, err)
		}
	}
	return answer
}

// store stores the reply while the lease is held: after a loss the handler's context has ended,
// and its reply may be about that. A request that fails may have been applied: then its
// repetition finds this very reply.
func (h *handler) store(ctx context.Context, q *request, lease *lock.Lease, r *reply) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := Record{lease.Token(), q.fingerprint, r.encode()}
	for {
		if err := lease.Err(); err != nil {
			return err
		}
		previous, err := h.replies.Swap(ctx, q.name, done, h.config.Keep)
		switch {
		case err == nil && previous.Token == done.Token && (len(previous.Reply) == 0 || bytes.Equal(previous.Reply, done.Reply)):
			return nil
		case err == nil:
			return lock.ErrLost // or the record of this attempt was dropped
		}
		if !backoff.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// unavailable asks for a repetition.
func (h *handler) unavailable(q *request, err error) *reply {
	h.config.Logger.Error("idempotency: no reply", "record", q.name, "error", err)
	return later(http.StatusServiceUnavailable, "repeat the request with the same Idempotency-Key")
}

// later is a problem that a repetition solves.
func later(status int, detail string) *reply {
	r := problem(status, detail)
	r.Headers.Set("Retry-After", "1")
	return r
}

// problem returns a reply by RFC 9457.
func problem(status int, detail string) *reply {
	text, _ := json.Marshal(struct { //nolint:errchkjson // texts and a number
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
	return &reply{Status: status, Headers: http.Header{"Content-Type": {"application/problem+json"}}, Text: text}
}
