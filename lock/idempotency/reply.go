package idempotency

import (
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
	final  bool // repetitions get this reply, rather than another attempt
}

// storedReply is a reply in the store. Values of headers are bytes: they need not be UTF-8, as
// the texts of JSON are.
type storedReply struct {
	Status  int
	Headers map[string][][]byte
	Text    []byte
}

var errReply = errors.New("idempotency: the reply is larger than Config.MaxReply, or smaller than its Content-Length")

func (r *reply) Header() http.Header { return r.header }

func (r *reply) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("idempotency: invalid status code %d", status))
	}
	if r.Status != 0 || status < 200 {
		return // informational ones are not held back, and not sent
	}
	r.Status, r.Headers = status, http.Header{}
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		one := http.CanonicalHeaderKey(name) // a program may use others, as of an API in lower case
		r.Headers[one] = append(r.Headers[one], r.header[name]...)
	}
}

// Write drops what is beyond the limit, without an error: the handler may answer one by a panic,
// as a proxy does, though its effect has happened.
func (r *reply) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	switch {
	case r.Status == http.StatusNoContent || r.Status == http.StatusNotModified:
		return 0, http.ErrBodyNotAllowed
	case r.large || len(p) > r.limit-len(r.Text):
		r.large, r.Text = true, nil
		return len(p), nil
	}
	r.Text = append(r.Text, p...)
	return len(p), nil
}

// finish ends the reply when the handler has returned. One that is too large or incomplete has
// failed: it becomes a problem, which is final all the same, as the effect has happened.
func (r *reply) finish() (failed bool) {
	r.WriteHeader(http.StatusOK)
	r.final = r.Status < 500 && r.Status != http.StatusTooManyRequests
	n, _ := strconv.Atoi(r.Headers.Get("Content-Length"))
	if failed = r.large || n > len(r.Text) && r.Status != http.StatusNoContent && r.Status != http.StatusNotModified; failed {
		p := problem(http.StatusInternalServerError, "the reply is too large, or incomplete")
		r.Status, r.Headers, r.Text = p.Status, p.Headers, p.Text
	}
	drop := []string{"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length", "Date"}
	for _, value := range r.Headers.Values("Connection") {
		for name := range strings.SplitSeq(value, ",") {
			drop = append(drop, http.CanonicalHeaderKey(strings.TrimSpace(name)))
		}
	}
	maps.DeleteFunc(r.Headers, func(name string, _ []string) bool {
		return slices.Contains(drop, name) || strings.HasPrefix(name, http.TrailerPrefix)
	})
	return failed
}

// send sends the reply.
func (r *reply) send(w http.ResponseWriter) {
	header := w.Header()
	for name, values := range r.Headers {
		if name == "Vary" || name == "Set-Cookie" { // lists: the outer handlers' part is true of this reply, too
			values = slices.Concat(header[name], values)
		}
		header[name] = values
	}
	if r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(len(r.Text)))
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Text)
}

func (r *reply) encode() []byte {
	s := storedReply{r.Status, map[string][][]byte{}, r.Text}
	for name, values := range r.Headers {
		s.Headers[name] = make([][]byte, len(values)) // none keeps net/http from adding the header
		for i, value := range values {
			s.Headers[name][i] = []byte(value)
		}
	}
	text, _ := json.Marshal(s) //nolint:errchkjson // texts and numbers
	return text
}

func decodeReply(text []byte) (*reply, error) {
	var s storedReply
	if err := json.Unmarshal(text, &s); err != nil || s.Status < 200 || s.Status > 999 {
		return nil, errors.Join(errors.New("idempotency: the stored reply is damaged"), err)
	}
	r := &reply{Status: s.Status, Headers: http.Header{}, Text: s.Text}
	for name, values := range s.Headers {
		r.Headers[name] = make([]string, len(values))
		for i, value := range values {
			r.Headers[name][i] = string(value)
		}
	}
	return r, nil
}
