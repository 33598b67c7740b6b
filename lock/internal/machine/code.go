package machine

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Coder appends values to Bytes, or takes them from it: one description of a type serves both.
type Coder struct {
	Bytes   []byte
	Reading bool
	Bad     bool // Bytes had something else; what was read is not valid
}

// Encode returns what code writes.
func Encode(code func(*Coder)) []byte {
	c := Coder{Bytes: make([]byte, 0, 256)}
	code(&c)
	return c.Bytes
}

// Decode reads what Encode has returned, and reports whether that is complete.
func Decode(b []byte, code func(*Coder)) bool {
	c := Coder{Bytes: b, Reading: true}
	code(&c)
	return !c.Bad && len(c.Bytes) == 0
}

// Int codes an integer.
func Int[T ~int | ~int64 | ~uint8](c *Coder, v *T) {
	if !c.Reading {
		c.Bytes = binary.AppendVarint(c.Bytes, int64(*v))
		return
	}
	n, size := binary.Varint(c.Bytes)
	if size <= 0 || int64(T(n)) != n {
		c.Bad, c.Bytes = true, nil
		return
	}
	*v, c.Bytes = T(n), c.Bytes[size:]
}

// Text codes a string.
func (c *Coder) Text(v *string) {
	n := c.size(len(*v))
	if !c.Reading {
		c.Bytes = append(c.Bytes, *v...)
		return
	}
	*v, c.Bytes = string(c.Bytes[:n]), c.Bytes[n:]
}

// Bool codes a bool.
func (c *Coder) Bool(v *bool) {
	n := 0
	if *v {
		n = 1
	}
	Int(c, &n)
	*v = n != 0
}

// size codes a number of bytes, or of values that have a byte at least.
func (c *Coder) size(n int) int {
	if Int(c, &n); c.Reading && (n < 0 || n > len(c.Bytes)) {
		c.Bad, c.Bytes, n = true, nil, 0
	}
	return n
}

// List codes a slice. An empty one is read as nil.
func List[T any](c *Coder, v *[]T, each func(*T)) {
	n := c.size(len(*v))
	if c.Reading {
		if *v = nil; n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		each(&(*v)[i])
	}
}

// Map codes a map, in the order of its keys. An empty one is read as nil.
func Map[V any](c *Coder, v *map[string]V, each func(*V)) {
	keys := slices.Sorted(maps.Keys(*v))
	List(c, &keys, c.Text)
	if c.Reading {
		if *v = nil; len(keys) > 0 {
			*v = make(map[string]V, len(keys))
		}
	}
	for _, key := range keys {
		value := (*v)[key]
		if each(&value); c.Reading {
			(*v)[key] = value
		}
	}
}

// Topic codes a topic.
func (c *Coder) Topic(t *Topic) {
	Int(c, &t.Kind)
	c.Text(&t.Of)
}

// Client codes the record of a client.
func (c *Coder) Client(r *driver.Client) {
	c.Text(&r.ID)
	c.Text(&r.Host)
	c.Text(&r.Process)
	Int(c, &r.PID)
	c.Text(&r.Label)
	since := r.Since.UnixNano()
	if Int(c, &since); c.Reading {
		r.Since = time.Unix(0, since)
	}
}
