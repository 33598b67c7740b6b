package redistest

import (
	"bytes"
	"io"
	"strconv"
	"time"
)

// duplicate sends a chunk of requests to the server once more, after a while, if it
// consists of whole commands.
func (p *Proxy) duplicate(requests []byte, after time.Duration) {
	if !wholeCommands(requests) {
		return
	}
	p.loops.Go(func() {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.gone:
			return
		}
		conn, err := p.dial()
		if err != nil {
			return
		}
		defer conn.Close()
		if p.Login != "" {
			requests = append([]byte(p.Login+"\r\n"), requests...)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		if _, err := conn.Write(requests); err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, conn) // until the deadline: the server runs them meanwhile
	})
}

// wholeCommands reports whether bytes are commands in RESP, from the first byte of
// one to the last byte of another.
func wholeCommands(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	for len(b) > 0 {
		arguments, rest, ok := number(b, '*')
		if !ok {
			return false
		}
		for range arguments {
			size, after, ok := number(rest, '$')
			if !ok || size < 0 || len(after) < size+2 {
				return false
			}
			rest = after[size+2:]
		}
		b = rest
	}
	return true
}

// number reads a line that consists of mark and a number.
func number(b []byte, mark byte) (n int, rest []byte, ok bool) {
	line, rest, found := bytes.Cut(b, []byte("\r\n"))
	if !found || len(line) < 2 || line[0] != mark {
		return 0, nil, false
	}
	n, err := strconv.Atoi(string(line[1:]))
	return n, rest, err == nil
}
