package redisstore

import (
	_ "embed"
	"regexp"

	"github.com/leasewheel/leasewheel/lock"
)

var (
	//go:embed inspect_plain.lua
	inspectPlainSource string

	inspectPlain = newTimelyScript(publishSource, inspectPlainSource)
)

// plainCall returns the call that tells about a plain lock, and frees it unless
// publish is empty. Anything may be in a string: listed says that nobody has
// asked for the lock by its name: the string of any program would be listed as one.
func plainCall(name, publish string, listed bool) call {
	only := 0
	if listed {
		only = 1
	}
	return newCall(inspectPlain, []string{name, tokenKey(name), channelKey(name)}, publish, only)
}

// ownOwner matches the owners that leasewheel's clients have.
var ownOwner = regexp.MustCompile(`^[0-9a-f]+(-[0-9a-f]+){4}:-?[0-9]+$`)

// sanitize takes from what is told of a plain lock what only an owner of leasewheel's
// has, unless it is one; and what a terminal should not see.
func sanitize(info *lock.Info) {
	for i := range info.Holders {
		h := &info.Holders[i]
		if ownOwner.MatchString(h.Owner) {
			continue
		}
		h.Client = lock.Client{}
		if !printable(h.Owner) {
			h.Owner = lock.EscapeName(h.Owner)
		}
	}
}
