package redisstore

import (
	"slices"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/check"
)

// rights are what a user needs for a kind of lock, beside the rights of a mutex. Kinds with
// one flag have common rights.
type rights struct {
	name   string // of the locks
	flag   string // of leasewheel acl, with a space before it
	needed bool   // without these rights no lock is granted
	// commands as rights.lua takes them: each changes nothing on a key that does not exist.
	commands []string
	// keys and channels derive from a lock's key, a client's id, and an owner of that client.
	keys, channels func(at, client, owner key) []key
}

// noClient is an id that no client has. Rights to keys and channels of one client depend on
// the form of an id.
const noClient = "00000000-0000-0000-0000-000000000000"

// uses returns what a user of these kinds needs at the key of a lock.
func uses(kinds []*kind, at key) (uses []check.Use) {
	for _, k := range kinds {
		r := k.rights
		if r == nil {
			continue
		}
		i := slices.IndexFunc(uses, func(u check.Use) bool { return u.Flag == r.flag })
		if i < 0 {
			i = len(uses)
			uses = append(uses, check.Use{Name: r.name, Flag: r.flag, Needed: r.needed})
		}
		u := &uses[i]
		u.Commands = append(u.Commands, r.commands...)
		for _, k := range r.keys(at, noClient, noClient+":1") {
			u.Keys = append(u.Keys, string(k))
		}
		for _, c := range r.channels(at, noClient, noClient+":1") {
			u.Channels = append(u.Channels, string(c))
		}
	}
	return uses
}
