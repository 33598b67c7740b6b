package redisstore

import (
	"regexp"
	"unicode/utf8"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var inspectPlain = transport.File("inspect_plain.lua")

// plainCall returns the call that describes a plain lock, and frees it unless publish is
// empty. named is set if the caller asked for the lock by name. Otherwise a string counts as
// a lock only if it looks like one, since other programs store strings, too.
func plainCall(at key, publish string, named bool) *transport.Call {
	return newCall(inspectPlain, []key{at, tokenKey(at), channelKey(at)}, publish, !named)
}

// ownOwner matches the owners of leasewheel's clients.
var ownOwner = regexp.MustCompile(`^[0-9a-f]+(-[0-9a-f]+){4}:-?[0-9]+$`)

// sanitize removes the client from each holder that is no leasewheel owner. It shortens
// owners of more than MaxName bytes, and escapes those that a terminal should not show.
func sanitize(info *driver.Info) {
	for i := range info.Holders {
		h := &info.Holders[i]
		if ownOwner.MatchString(h.Owner) {
			continue
		}
		h.Client = driver.Client{}
		h.Owner = shortened(h.Owner)
		if !printable(h.Owner) {
			h.Owner = driver.EscapeName(h.Owner)
		}
	}
}

// shortened returns at most driver.MaxName bytes of text. Longer ones end with an ellipsis.
func shortened(text string) string {
	const ellipsis = "…"
	if len(text) <= driver.MaxName {
		return text
	}
	end := driver.MaxName - len(ellipsis)
	for end > 0 && !utf8.RuneStart(text[end]) && end > driver.MaxName-len(ellipsis)-utf8.UTFMax {
		end--
	}
	return text[:end] + ellipsis
}
