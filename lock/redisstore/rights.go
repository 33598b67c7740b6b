package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

var (
	rightsScript = newScript("rights.lua")
)

// use is a use of a server, with what its scripts call. SECURITY.md has the same lists.
type use struct {
	name string
	flag string // with a space before it, for leasewheel acl
	// needed: without it no lock is granted.
	needed bool
	// commands as rights.lua takes them: each changes nothing on a key that does not exist.
	commands []string
	// keys and channels derive from a lock's key.
	keys, channels func(at key) []key
}

// uses returns what a user of this store needs, and what other kinds of lock add.
func (s *Store) uses() []use {
	mutexes := use{
		name: "mutexes", needed: true,
		commands: []string{
			"set @ x xx", // the first to write: once a script has, a server out of memory refuses nothing
			"hget @ x", "hdel @ x", "hset @ x 1 ; hdel @ x", "hexists @ x", "hrandfield @", "get @", "exists @", "pexpire @ 1", "pttl @", "persist @", "time",
			"zadd @ xx 1 x", "zpopmin @", "zrem @ x", "zscore @ x", "publish # x", "pubsub numsub #",
		},
		keys: func(at key) []key {
			return []key{
				at, tokenKey(at), waitQueueKey(at), yieldKey(at), clientKey(hashTag(at)),
				channelKey(at), waitChannel(at), // scripts get channels as keys, too
			}
		},
		channels: func(at key) []key {
			return []key{channelKey(at), waitChannel(at), waitChannel(at) + ":" + noClient}
		},
	}
	if s.config.Format == FormatPlain {
		mutexes.name, mutexes.flag = "plain locks", " --plain"
		mutexes.commands = append(mutexes.commands, "del @", "getrange @ 0 0")
		return []use{mutexes}
	}
	return []use{
		mutexes,
		{
			name: "fair locks", flag: " --fair",
			commands: []string{
				"lindex @ 0", "llen @", "lpop @", "lpos @ x", "lpush @ x ; lpop @", "lrem @ 0 x", "rpush @ x ; lpop @", "unlink @",
				"zcount @ 0 0", "zmscore @ x", "zrange @ 0 0", "zrangebyscore @ 0 0", "zremrangebyrank @ 0 0",
			},
			keys:     func(at key) []key { return []key{queueKey(at), timeoutsKey(at), placesKey(at)} },
			channels: func(at key) []key { return []key{channelKey(at) + ":" + noClient + ":1"} },
		},
		{
			name: "read-write locks", flag: " --read-write",
			commands: []string{"del @", "hlen @", "type @", "unlink @"},
			keys: func(at key) []key {
				return []key{holdsKey(at, noClient+":1"), claimKey(at), readWriteChannel(at)}
			},
			channels: func(at key) []key { return []key{readWriteChannel(at)} },
		},
		{
			name: "semaphores and latches", flag: " --semaphore",
			commands: []string{
				"type @", "del @", "getrange @ 0 0", "incrby @ 1 ; del @", "decrby @ 1 ; del @",
				"zcount @ 0 0", "zrange @ 0 0", "zremrangebyrank @ 0 0",
			},
			keys: func(at key) []key {
				return []key{requestKey(at, noClient+":1"), permitsKey(at), semaphoreChannel(at), latchChannel(at)}
			},
			channels: func(at key) []key { return []key{semaphoreChannel(at), latchChannel(at)} },
		},
	}
}

// noClient is an id that no client has. Rights to keys and channels of one client depend on
// the form of an id.
const noClient = "00000000-0000-0000-0000-000000000000"

// checkName is the beginning of the names on which rights are tried, unless the caller gives
// one.
const checkName = "leasewheel"

// unusedKey returns the key of a lock whose name begins with prefix, and that no client uses.
// In a cluster the node has its slot; ok is false if none was found.
func (s *Store) unusedKey(prefix, node string) (at key, ok bool) {
	for range 1000 {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		at, err := s.names.key(prefix + ":check-" + hex.EncodeToString(random[:]))
		if err != nil || driver.ValidateName(string(at)) != nil {
			return "", false
		}
		if s.cluster == nil || s.nodeOf(at) == node {
			return at, true
		}
	}
	return "", false
}

// refusals are what a user may not do, and what else a server refuses.
type refusals struct {
	commands []string // that the user may not run
	absent   []string // that the server does not have
	keys     []string // that the user may not use
	channels []string // that the user may not use
	faults   []error  // that have another reason
}

func (r *refusals) add(command, key, channel string, err error) {
	text := err.Error()
	switch lower := strings.ToLower(text); {
	case errors.Is(fault.Of(text), ErrNoPermission) || strings.Contains(lower, "executing the script can't"):
		switch {
		case channel != "" && strings.Contains(lower, "channel"):
			r.channels = append(r.channels, channel)
		case key != "" && strings.Contains(lower, "key"):
			r.keys = append(r.keys, key)
		default:
			r.commands = append(r.commands, command)
		}
	case strings.Contains(lower, "unknown redis command"), strings.Contains(lower, "unknown command"), strings.Contains(lower, "unknown subcommand"),
		strings.Contains(lower, "wrong number of args"), strings.HasSuffix(lower, "syntax error"):
		r.absent = append(r.absent, command)
	default:
		r.faults = append(r.faults, fault.Classify(fault.Refusal(text)))
	}
}

// none reports whether nothing was refused.
func (r *refusals) none() bool {
	return len(r.commands)+len(r.absent)+len(r.keys)+len(r.channels)+len(r.faults) == 0
}

// tryRights runs what locks need on names that no client uses, and reports what is refused.
func (e *examination) tryRights(ctx context.Context) error {
	prefix := cmp.Or(e.options.Name, checkName)
	at, ok := e.store.unusedKey(prefix, e.node.address)
	if !ok {
		e.unexamined("rights", fmt.Sprintf("no lock whose name begins with %s belongs to this server", excerpt(prefix)), "check with another name")
		return nil
	}
	for _, u := range e.store.uses() {
		r, err := e.tryUse(ctx, &u, at)
		if err != nil {
			return err
		}
		if u.needed && e.options.Name == "" && e.store.names.mapTo == nil && slices.Contains(r.keys, string(at)) {
			e.unexamined("rights", "the user may not use a lock called "+excerptAll([]string{string(at)}), "check with the beginning of a name that the user may use")
			return nil
		}
		e.reportRefusals(&u, &r)
		if u.needed && !r.none() {
			return nil // the rest would repeat it
		}
		e.usable = e.usable || u.needed
	}
	return e.tryMessages(ctx, at)
}

// tryUse returns what is refused of one use. err is an error if the server did not answer.
func (e *examination) tryUse(ctx context.Context, u *use, at key) (r refusals, err error) {
	pipe := e.node.client.Pipeline()
	keys, channels := u.keys(at), []key(nil)
	if u.channels != nil {
		channels = u.channels(at)
	}
	eval := pipe.Do(ctx, "eval", "return 1", 0)
	evalsha := pipe.Do(ctx, "evalsha", rightsScript.text().SHA, 0, "")
	var wait *redis.Cmd
	if u.needed && e.store.config.Replicas > 0 {
		wait = pipe.Do(ctx, "wait", 0, 1)
	}
	var ofKeys, ofChannels []*redis.Cmd
	for _, key := range keys {
		ofKeys = append(ofKeys, pipe.Do(ctx, "eval", "return 1", 1, string(key)))
	}
	for _, channel := range channels {
		ofChannels = append(ofChannels, pipe.Do(ctx, "publish", string(channel), "x"))
	}
	_, err = pipe.Exec(ctx)
	if err = fault.Classify(err); fault.Silent(err) {
		return r, err
	}
	if err := eval.Err(); err != nil {
		r.add("eval", "", "", err)
		return r, nil
	}
	if wait != nil && wait.Err() != nil {
		r.add("wait", "", "", wait.Err())
	}
	if err := evalsha.Err(); err != nil && !fault.NoScript(err) {
		r.add("evalsha", "", "", err)
	}
	var usable key
	for i, cmd := range ofKeys {
		if err := cmd.Err(); err != nil {
			r.add("eval", string(keys[i]), "", err)
			continue
		}
		usable = cmp.Or(usable, keys[i])
	}
	for i, cmd := range ofChannels {
		if err := cmd.Err(); err != nil && strings.Contains(strings.ToLower(err.Error()), "channel") {
			r.add("publish", "", string(channels[i]), err)
		}
	}
	if usable == "" {
		return r, nil
	}
	return r, e.tryCommands(ctx, u, usable, channelKey(at), &r)
}

// tryCommands adds the commands of a use that are refused in scripts.
func (e *examination) tryCommands(ctx context.Context, u *use, at, channel key, r *refusals) error {
	commands := u.commands
	if u.needed {
		commands = append(slices.Clone(commands), e.more...)
	}
	args := []any{"eval", rightsScript.text().Source, 1, string(at), string(channel)}
	for _, command := range commands {
		args = append(args, command)
	}
	reply, err := e.node.client.Do(ctx, args...).Result()
	switch {
	case fault.Silent(fault.Classify(err)):
		return fault.Classify(err)
	case err != nil:
		r.add("eval", "", "", err)
		return nil
	}
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 || len(list) > 2*len(commands) {
		r.faults = append(r.faults, fault.Unexpected(reply))
		return nil
	}
	for ; len(list) > 0; list = list[2:] {
		index, isNumber := list[0].(int64)
		text, isText := list[1].(string)
		if !isNumber || !isText || index < 0 || index >= int64(len(commands)) {
			r.faults = append(r.faults, fault.Unexpected(list[0]))
			return nil
		}
		words := strings.Fields(commands[index])
		command := words[0]
		if command == "pubsub" {
			command += "|" + words[1]
		}
		r.add(command, "", string(channel), fault.Refusal(text))
	}
	return nil
}

// reportRefusals reports what was refused of a use, on names at a key of unusedKey.
func (e *examination) reportRefusals(u *use, r *refusals) {
	// Redis tries a script's rights one call at a time, so what is granted may lack the rights
	// of its release.
	const lacking = "are refused, or granted and not released before their TTL is over, or waiters are not woken"
	severity, promise := driver.SeverityNote, "none, unless "+u.name+" are used: they "+lacking
	if u.needed {
		severity, promise = driver.SeverityError, acquired+": locks "+lacking
	}
	var lacks []string
	lack := func(what string, of []string) {
		if len(of) > 0 {
			lacks = append(lacks, what+" "+excerptAll(of))
		}
	}
	lack("run", r.commands)
	lack("use the keys", r.keys)
	lack("use the channels", r.channels)
	if len(lacks) > 0 {
		e.found(severity, "rights", "the user may not "+strings.Join(lacks, "; nor "), promise,
			"give the user the rights for "+u.name+": leasewheel acl"+u.flag+" prints them")
	}
	if len(r.absent) > 0 {
		e.found(severity, "version", "the server lacks, or hides, "+excerptAll(r.absent), promise,
			"use Redis 6.2 or newer, or a compatible server, without renamed commands and without a proxy that filters them")
	}
	for _, err := range r.faults {
		if e.refusesWrites(err) {
			continue
		}
		e.found(driver.SeverityError, "writes", "the server refuses what scripts do: "+excerpt(err.Error()), acquired+": acquisitions may be refused",
			"run the same command by redis-cli; a proxy may alter it")
		return
	}
}

// refusesWrites reports a refusal of a known class, once each class. It returns whether err
// is one.
func (e *examination) refusesWrites(err error) bool {
	refused, ok := errors.AsType[*ServerError](err)
	if !ok || refused.Fault == nil {
		return false
	}
	text := "the server refuses to write: " + refused.Fault.Error()
	if !slices.ContainsFunc(e.findings, func(f driver.Finding) bool { return f.Found == text }) {
		e.found(driver.SeverityError, "writes", text, acquired+": every acquisition is refused", fault.Advice(refused))
	}
	return true
}

// madeUp matches what unusedKey adds to the beginning of a name.
var madeUp = regexp.MustCompile(`:check-[0-9a-f]{16}`)

// excerptAll joins words, each once.
func excerptAll(words []string) string {
	words = slices.Clone(words)
	for i := range words {
		words[i] = madeUp.ReplaceAllString(words[i], "…")
	}
	slices.Sort(words)
	return excerptOf(strings.Join(slices.Compact(words), " "), 1000)
}

// messageTimeout is how long a message may take from a publisher to a subscriber.
const messageTimeout = 2 * time.Second

// tryMessages subscribes to the channels of a mutex and publishes to one of them.
func (e *examination) tryMessages(ctx context.Context, at key) error {
	promise := acquired + ": a waiter is not woken by the release, and asks again every 5 s only"
	for i, channel := range e.store.uses()[0].channels(at) {
		failed, received, err := e.exchange(ctx, string(channel), i == 0)
		var refused redis.Error
		switch {
		case errors.As(err, &refused):
			var r refusals
			r.add(failed, "", string(channel), err)
			u := e.store.uses()[0]
			e.reportRefusals(&u, &r)
			return nil
		case err != nil:
			e.found(driver.SeverityError, "pubsub", "a subscription is not confirmed: "+excerpt(err.Error()), promise,
				"connect without a proxy, or through one that passes pub/sub on")
			return nil
		case !received:
			e.found(driver.SeverityError, "pubsub", "a published message was not delivered to its subscriber", promise,
				"connect without a proxy, or through one that passes pub/sub on")
			return nil
		}
	}
	return nil
}

// exchange subscribes to a channel, publishes a message to it if send is set, and
// unsubscribes. It reports whether the message arrived, or which command failed.
func (e *examination) exchange(ctx context.Context, channel string, send bool) (failed string, received bool, err error) {
	pubsub := e.node.client.Subscribe(ctx)
	defer pubsub.Close()
	prefix, subscribe, unsubscribe, publish := "", pubsub.Subscribe, pubsub.Unsubscribe, e.node.client.Publish
	if e.sharded {
		prefix, subscribe, unsubscribe, publish = "s", pubsub.SSubscribe, pubsub.SUnsubscribe, e.node.client.SPublish
	}
	if err = subscribe(ctx, channel); err == nil {
		_, err = pubsub.ReceiveTimeout(ctx, messageTimeout)
	}
	if err != nil {
		return prefix + "subscribe", false, err
	}
	if send {
		if err := publish(ctx, channel, "check").Err(); err != nil {
			return prefix + "publish", false, err
		}
		reply, err := pubsub.ReceiveTimeout(ctx, messageTimeout)
		if message, ok := reply.(*redis.Message); err != nil || !ok || message.Channel != channel {
			return "", false, nil // the message is missing, for whatever reason
		}
	}
	if err = unsubscribe(ctx, channel); err == nil {
		_, err = pubsub.ReceiveTimeout(ctx, messageTimeout)
	}
	return prefix + "unsubscribe", err == nil, err
}
