package redisstore

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// everyKeyOf returns the keys and channels of the lock at a key, as the rows of the kinds state them
// for users' rights, and those that others derive.
func everyKeyOf(at key) []key {
	keys := []key{
		derive("leasewheel_queue_due", at),            // a delay queue's
		derive("redisson_unlock_latch", at) + ":00ff", // that Redisson derives
	}
	of := subject{at: at, client: aClient, owner: aClient + ":7", record: at}
	for _, u := range uses(slices.Concat(kinds, formats[FormatPlain].kinds), of) {
		for _, text := range slices.Concat(u.Keys, u.Channels) {
			keys = append(keys, key(text))
		}
	}
	return keys
}

const aClient = "0189d5a3-1111-4222-8333-444455556666"

// Two accepted names have no key and no channel in common, except those that random
// client ids make private to a client.
func TestAcceptedNamesShareNoKeyAndNoChannel(t *testing.T) {
	part := rapid.SampledFrom([]string{
		"a", "b", "{", "}", "{a}", "{b}", ":", "timeout", ":timeout", ":rwlock_timeout", ":1", aClient + ":7",
		"redisson_", "leasewheel_", "lock_token", "lock__channel", "redisson_lock_token:", "redisson_lock__channel:",
		"redisson_countdownlatch__channel__", "leasewheel_request:", "leasewheel_lock_line:", "redisson_unlock_latch:",
	})
	accepted := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 6).Draw(t, "parts"), "")
	}).Filter(func(name string) bool {
		// A name that ends in the id of a client of ours was made for that client.
		return driver.ValidateName(name) == nil && !strings.Contains(name, aClient)
	})
	rapid.Check(t, func(t *rapid.T) {
		one, other := accepted.Draw(t, "one"), accepted.Draw(t, "other")
		// Most clashes are between a name and a key derived from another one.
		if rapid.Bool().Draw(t, "derived") {
			derived := string(rapid.SampledFrom(everyKeyOf(key(one))).Draw(t, "by"))
			for _, name := range []string{derived, "{" + one + "}", strings.TrimSuffix(derived, ":"+aClient+":7")} {
				if driver.ValidateName(name) == nil && !strings.Contains(name, aClient) {
					other = name
				}
			}
		}
		if one == other {
			return
		}
		ofOne := everyKeyOf(key(one))
		for _, shared := range everyKeyOf(key(other)) {
			if slices.Contains(ofOne, shared) {
				t.Fatalf("%q is of %q and of %q", shared, one, other)
			}
		}
	})
}

// Pairs of names that Redisson confuses.
func TestNamesThatShareKeysAreRefused(t *testing.T) {
	for one, other := range map[string]string{
		"orders":         "{orders}",
		"{user:7}:cart":  "{{user:7}:cart}",
		"a":              "{a}:timeout",
		"{a}:b":          "{a}:b:timeout",
		"b":              "redisson_lock_token:{b}",
		"{b}:c":          "redisson_lock__channel:{b}:c",
		"c":              "leasewheel_lock_line:{c}",
		"d":              string(holdsKey("d", aClient+":7")) + ":1",
		"mails":          "leasewheel_queue_due:{mails}",
		"the client's":   string(clientKey(aClient)),
		"a latch's":      string(latchChannels("a latch's")[0]),
		"{tagged}:latch": string(latchChannels("{tagged}:latch")[0]),
	} {
		require.NoError(t, driver.ValidateName(one))
		var refused *lock.NameError
		assert.ErrorAs(t, driver.ValidateName(other), &refused, "%q beside %q", other, one)
	}
}
