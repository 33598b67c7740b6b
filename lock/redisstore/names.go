package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// mapping maps names of locks to keys, like Redisson's NameMapper. The zero value is the
// identity.
type mapping struct {
	prefix string
	mapTo  func(name string) string
	back   func(key string) (name string, ok bool)
}

// errMapping is the error of a configuration with two mappings of names, or half of one.
var errMapping = errors.New("redisstore: set either Prefix, or MapName and UnmapName together")

// mapping returns the configuration's name mapping.
func (c *Config) mapping() (mapping, error) {
	switch {
	case (c.MapName == nil) != (c.UnmapName == nil), c.Prefix != "" && c.MapName != nil:
		return mapping{}, errMapping
	case c.MapName != nil:
		return mapping{mapTo: c.MapName, back: c.UnmapName}, nil
	case c.Prefix != "":
		prefix := c.Prefix
		return mapping{
			prefix: prefix,
			mapTo:  func(name string) string { return prefix + name },
			back:   func(key string) (string, bool) { return strings.CutPrefix(key, prefix) },
		}, nil
	}
	return mapping{}, nil
}

// key returns the key of the lock called name. It refuses a key that is no valid name.
func (m *mapping) key(name string) (key, error) {
	if m.mapTo == nil {
		return key(name), nil
	}
	mapped := m.mapTo(name)
	if err := driver.ValidateName(mapped); err != nil {
		return "", fmt.Errorf("redisstore: the name %q is mapped to an invalid key: %w: %w", name, err, driver.ErrNotDone)
	}
	return key(mapped), nil
}

// name returns the name of the lock at the key; ok is false if there is none.
func (m *mapping) name(at key) (name string, ok bool) {
	if m.back == nil {
		return string(at), true
	}
	return m.back(string(at))
}

// pattern returns the prefix of the keys of all locks whose names begin with prefix.
func (m *mapping) pattern(prefix string) string {
	if m.mapTo != nil && m.prefix == "" {
		return "" // any key may match
	}
	return m.prefix + prefix
}
