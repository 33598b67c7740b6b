package redisstore

import (
	"slices"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/check"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// Use is a use of the server, such as a kind of lock, with what a Redis user needs for it.
type Use = check.Use

// Uses returns the uses of locks whose names match pattern, as Redis matches keys: mutexes,
// which all others build on, the other kinds of lock, inspection and forced release.
func Uses(pattern string) []Use {
	const client = "????????-????-????-????-????????????"
	all := slices.Concat(kinds, formats[FormatPlain].kinds, []*kind{{rights: inspecting}, {rights: forcing}})
	return uses(all, subject{at: key(pattern), client: client, owner: client + ":*", record: "*"})
}

// rights are what a user needs for a kind of lock, or for another use, beside the rights of a
// mutex. Rows with one flag have common rights.
type rights struct {
	flag   string // of leasewheel acl
	name   string // of the locks
	needed bool   // without these rights no lock is granted
	// scripts are those of the use: it needs their commands.
	scripts  []*transport.Script
	commands []string // without a script, or of scripts that can do more
	// reached returns the keys, with the channels among them, and the channels.
	reached func(of subject) (keys, channels []key)
}

// subject is what keys and channels derive from: a lock's key, a client's id, an owner of that
// client, and an id for the record of a client.
type subject struct{ at, client, owner, record key }

// example returns a subject without a client. Rights to keys and channels of one client depend
// on the form of an id. In a cluster all keys have the slot of the lock's.
func example(at key) subject {
	const client = "00000000-0000-0000-0000-000000000000"
	return subject{at: at, client: client, owner: client + ":1", record: key(transport.HashTag(string(at)))}
}

// uses returns the uses of rows.
func uses(kinds []*kind, of subject) (uses []Use) {
	for _, k := range kinds {
		r := &k.rights
		i := slices.IndexFunc(uses, func(u Use) bool { return u.Flag == r.flag })
		if i < 0 {
			i = len(uses)
			uses = append(uses, Use{Name: r.name, Flag: r.flag, Needed: r.needed})
		}
		u := &uses[i]
		u.Commands = add(u.Commands, r.commands)
		for _, sc := range r.scripts {
			u.Commands = add(u.Commands, sc.Text().Commands())
		}
		keys, channels := r.reached(of)
		u.Keys, u.Channels = add(u.Keys, keys), add(u.Channels, channels)
	}
	return uses
}

// add appends more to texts, each text once.
func add[T ~string](texts []string, more []T) []string {
	for _, text := range more {
		if !slices.Contains(texts, string(text)) {
			texts = append(texts, string(text))
		}
	}
	return texts
}
