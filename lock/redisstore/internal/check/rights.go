package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

var rights = lua.File("rights.lua")

// Use is a use of a server, with what its scripts need.
type Use struct {
	Name   string
	Flag   string // of leasewheel acl
	Needed bool   // without it no lock is granted
	// Commands, Keys and Channels are as rules of Redis' ACL name them.
	Commands, Keys, Channels []string
}

// checkName is the beginning of the names on which rights are tried, unless the caller gives
// one.
const checkName = "leasewheel"

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
	switch class := fault.Of(text); {
	case errors.Is(class, fault.ErrTooOld):
		r.absent = append(r.absent, command)
	case !errors.Is(class, fault.ErrNoPermission):
		r.faults = append(r.faults, fault.Classify(fault.Refusal(text)))
	case channel != "" && ofChannel(err):
		r.channels = append(r.channels, channel)
	case key != "" && strings.Contains(strings.ToLower(text), "key"):
		r.keys = append(r.keys, key)
	default:
		r.commands = append(r.commands, command)
	}
}

// ofChannel reports whether a refusal is that of a channel.
func ofChannel(err error) bool { return strings.Contains(strings.ToLower(err.Error()), "channel") }

// none reports whether nothing was refused.
func (r *refusals) none() bool {
	return len(r.commands)+len(r.absent)+len(r.keys)+len(r.channels)+len(r.faults) == 0
}

// tryRights runs what locks need on names that no client uses, and reports what is refused.
func (e *examination) tryRights(ctx context.Context) error {
	prefix := cmp.Or(e.options.Name, checkName)
	keys := e.subject.UnusedKeys(prefix, e.node.Address, 1)
	if keys == nil {
		e.unexamined("rights", fmt.Sprintf("no lock whose name begins with %s belongs to this server", excerpt(prefix)), "check with another name")
		return nil
	}
	at := keys[0]
	uses := e.subject.Uses(at)
	for _, u := range uses {
		r, err := e.tryUse(ctx, &u)
		if err != nil {
			return err
		}
		if u.Needed && e.options.Name == "" && !e.subject.Mapped && slices.Contains(r.keys, at) {
			e.unexamined("rights", "the user may not use a lock called "+excerptAll([]string{at}), "check with the beginning of a name that the user may use")
			return nil
		}
		e.reportRefusals(&u, &r)
		if u.Needed && !r.none() {
			return nil // the rest would repeat it
		}
		e.usable = e.usable || u.Needed
	}
	e.tryMessages(ctx, &uses[0])
	return nil
}

// tryUse returns what is refused of one use. err is an error if the server did not answer.
func (e *examination) tryUse(ctx context.Context, u *Use) (r refusals, err error) {
	pipe := e.node.Client.Pipeline()
	type request struct {
		command, key, channel string
		reply                 *redis.Cmd
	}
	requests := []request{
		{command: "eval", reply: pipe.Do(ctx, "eval", "return 1", 0)},
		{command: "evalsha", reply: pipe.Do(ctx, "evalsha", rights().SHA, 0, "")},
	}
	if u.Needed && e.subject.Replicas > 0 {
		requests = append(requests, request{command: "wait", reply: pipe.Do(ctx, "wait", 0, 1)})
	}
	for _, key := range u.Keys {
		requests = append(requests, request{command: "eval", key: key, reply: pipe.Do(ctx, "eval", "return 1", 1, key)})
	}
	for _, channel := range u.Channels {
		requests = append(requests, request{command: "publish", channel: channel, reply: pipe.Do(ctx, "publish", channel, "x")})
	}
	_, err = pipe.Exec(ctx)
	if err = fault.Classify(err); fault.Silent(err) {
		return r, err
	}
	var usable string
	for i, request := range requests {
		switch err := request.reply.Err(); {
		case err == nil:
			usable = cmp.Or(usable, request.key)
		case fault.NoScript(err), request.channel != "" && !ofChannel(err): // tryCommands finds whether publish is refused
		default:
			r.add(request.command, request.key, request.channel, err)
			if i == 0 {
				return r, nil // all others need eval
			}
		}
	}
	if usable == "" {
		return r, nil
	}
	return r, e.tryCommands(ctx, u, usable, &r)
}

// tryCommands adds the commands of a use that are refused in scripts.
func (e *examination) tryCommands(ctx context.Context, u *Use, at string, r *refusals) error {
	channel := u.Channels[0]
	commands := u.Commands
	if u.Needed && e.sharded {
		commands = append(slices.Clone(commands), "pubsub|shardnumsub", "spublish")
	}
	args := []any{"eval", rights().Source, 1, at, channel}
	for _, command := range commands {
		args = append(args, command)
	}
	reply, err := e.node.Client.Do(ctx, args...).Result()
	switch {
	case fault.Silent(fault.Classify(err)):
		return fault.Classify(err)
	case err != nil:
		r.add("eval", "", "", err)
		return nil
	}
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		r.faults = append(r.faults, fault.Unexpected(reply))
		return nil
	}
	for ; len(list) > 0; list = list[2:] {
		command, _ := list[0].(string)
		text, isText := list[1].(string)
		if !isText || !slices.Contains(commands, command) {
			r.faults = append(r.faults, fault.Unexpected(list[0]))
			return nil
		}
		r.add(command, "", channel, fault.Refusal(text))
	}
	return nil
}

// plainName matches names that are patterns, and words of a shell, as they are.
var plainName = regexp.MustCompile(`^[\w:./@%+=,-]+$`)

// pattern returns that of the examined name's rights, with a space before it.
func (e *examination) pattern() string {
	if name := e.options.Name; plainName.MatchString(name) {
		return " '" + name + "*'"
	}
	return ""
}

// reportRefusals reports what was refused of a use, on names that no client uses.
func (e *examination) reportRefusals(u *Use, r *refusals) {
	// Redis tries a script's rights one call at a time, so what is granted may lack the rights
	// of its release.
	const lacking = "are refused, or granted and not released before their TTL is over, or waiters are not woken"
	severity, promise := driver.SeverityNote, "none, unless "+u.Name+" are used: they "+lacking
	if u.Needed {
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
			"give the user the rights for "+u.Name+": leasewheel acl --"+u.Flag+e.pattern()+" prints them")
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
	refused, ok := errors.AsType[*fault.Error](err)
	if !ok || refused.Fault == nil {
		return false
	}
	text := "the server refuses to write: " + refused.Fault.Error()
	if !slices.ContainsFunc(e.findings, func(f driver.Finding) bool { return f.Found == text }) {
		e.found(driver.SeverityError, "writes", text, acquired+": every acquisition is refused", fault.Advice(refused))
	}
	return true
}

// madeUp matches what Subject.UnusedKeys adds to the beginning of a name.
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

// tryMessages subscribes to the channels of a mutex and publishes to one of them.
func (e *examination) tryMessages(ctx context.Context, u *Use) {
	promise := acquired + ": a waiter is not woken by the release, and asks again every 5 s only"
	for i, channel := range u.Channels {
		command, err := e.exchange(ctx, channel, i == 0)
		if err == nil {
			continue
		}
		if refused, ok := errors.AsType[redis.Error](err); ok {
			var r refusals
			r.add(command, "", channel, refused)
			e.reportRefusals(u, &r)
			return
		}
		e.found(driver.SeverityError, "pubsub", excerpt(err.Error()), promise, "connect without a proxy, or through one that passes pub/sub on")
		return
	}
}

// exchange subscribes to a channel, publishes a message to it if send is set, and
// unsubscribes. It returns which command failed.
func (e *examination) exchange(ctx context.Context, channel string, send bool) (command string, err error) {
	pubsub := e.node.Client.Subscribe(ctx)
	defer pubsub.Close()
	prefix, subscribe, unsubscribe, publish := "", pubsub.Subscribe, pubsub.Unsubscribe, e.node.Client.Publish
	if e.sharded {
		prefix, subscribe, unsubscribe, publish = "s", pubsub.SSubscribe, pubsub.SUnsubscribe, e.node.Client.SPublish
	}
	confirmed := func(err error) error {
		if err == nil {
			_, err = pubsub.ReceiveTimeout(ctx, e.subject.Limits.Message)
		}
		if err != nil {
			return fmt.Errorf("a subscription is not confirmed: %w", err)
		}
		return nil
	}
	if err := confirmed(subscribe(ctx, channel)); err != nil {
		return prefix + "subscribe", err
	}
	if send {
		if err := publish(ctx, channel, "check").Err(); err != nil {
			return prefix + "publish", fmt.Errorf("a message is not published: %w", err)
		}
		reply, err := pubsub.ReceiveTimeout(ctx, e.subject.Limits.Message)
		if message, ok := reply.(*redis.Message); err != nil || !ok || message.Channel != channel {
			return "", errors.New("a published message was not delivered to its subscriber") // for whatever reason
		}
	}
	return prefix + "unsubscribe", confirmed(unsubscribe(ctx, channel))
}
