package idempotency

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// reply is a handler's reply, held back until it is stored.
type reply struct {
	Status  int
	Headers http.Header
	Text    []byte

	header http.Header // the handler's; what it sets after WriteHeader is not sent
	limit  int
	large  bool // beyond the limit
}

var errLarge = errors.New("idempotency: the reply is larger than Config.MaxReply")

func (r *reply) Header() http.Header { return r.header }

func (r *reply) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("idempotency: invalid status code %d", status))
	}
	if r.Status != 0 || status < 200 {
		return // informational ones are not held back, and not sent
	}
	r.Status = status
	r.Headers = r.header.Clone()
}

func (r *reply) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	switch {
	case r.Status == http.StatusNoContent || r.Status == http.StatusNotModified:
		return 0, http.ErrBodyNotAllowed
	case r.large || len(p) > r.limit-len(r.Text):
		r.large = true
		return 0, errLarge
	}
	r.Text = append(r.Text, p...)
	return len(p), nil
}

// finish ends the reply when the handler has returned.
func (r *reply) finish() {
	r.WriteHeader(http.StatusOK)
	drop := []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date"}
	for _, value := range r.Headers.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			drop = append(drop, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	maps.DeleteFunc(r.Headers, func(name string, _ []string) bool {
		return slices.Contains(drop, name) || strings.HasPrefix(name, http.TrailerPrefix)
	})
}

// repeatable reports whether repetitions get this reply, rather than another attempt.
func (r *reply) repeatable() bool {
	return r.Status < 500 && r.Status != http.StatusTooManyRequests
}

// send sends the reply.
func (r *reply) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.Headers)
	if r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(r.Text)))
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Text)
}

func (r *reply) encode() ([]byte, error) { return json.Marshal(r) }

func decodeReply(text []byte) (*reply, error) {
	r := &reply{}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(r); err != nil || r.Status < 200 || r.Status > 999 {
		return nil, errors.Join(errors.New("idempotency: the stored reply is damaged"), err)
	}
	return r, nil
}
