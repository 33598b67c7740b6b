//go:build unix

package main

import (
	"context"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A lock under a prefix is the key of prefix and name. Every command takes and shows the
// name without the prefix, which comes from the flag or the environment.
func TestPrefix(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"redisson", "plain"} {
		for source, set := range map[string]func(env []string) ([]string, []string){
			"flag": func(env []string) ([]string, []string) { return env, []string{"--prefix", "x:"} },
			"environment": func(env []string) ([]string, []string) {
				return append(env, connect.PrefixVariable+"=x:"), nil
			},
		} {
			t.Run(format+", "+source, func(t *testing.T) {
				t.Parallel()
				server, bare := commandtest.OnServer(t, redistest.Config{})
				client := server.Client(t)
				env, flags := set(append([]string(nil), bare...))
				flags = append(flags, "--format", format)
				with := func(command string, args ...string) []string {
					return append(append([]string{command}, flags...), args...)
				}
				holder := commandtest.Start(t, env, runLock("job", sh("echo $LEASEWHEEL_LOCK_NAME; cat"), flags...)...)
				assert.Equal(t, "job", holder.Line())
				assert.EqualValues(t, 1, client.Exists(t.Context(), "x:job").Val(), "%v", client.Keys(t.Context(), "*").Val())
				assert.Zero(t, client.Exists(t.Context(), "job").Val())

				assert.Equal(t, "job\n", commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, with("ls")...)))
				assert.Equal(t, "job\n", commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, with("ls", "j*")...)))
				assert.Empty(t, commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, with("ls", "x:*")...)))
				assert.Equal(t, "x:job\n", commandtest.FirstColumn(commandtest.Ask(t, bare, exit.OK, "ls", "--format", format)))
				assert.Contains(t, commandtest.Ask(t, env, exit.OK, with("inspect", "job")...), "mutex")
				commandtest.Ask(t, bare, exit.NotHeld, "inspect", "--format", format, "job")
				commandtest.Ask(t, env, exit.NotHeld, "inspect", "--format", format, "--prefix", "", "job")

				commandtest.Ask(t, bare, exit.NotHeld, "unlock", "--force", "--format", format, "job")
				assert.Contains(t, commandtest.Ask(t, env, exit.OK, with("unlock", "--force", "job")...), "job: taken from")
				require.NoError(t, holder.Stdin.Close())
				assert.Equal(t, exit.Lost, holder.Wait())

				require.NoError(t, client.HSet(t.Context(), "x:job", "user", "ada").Err())
				p := commandtest.Call(t, env, runLock("job", sh("echo ran"), append(flags, "-n", "-E", "0")...)...)
				assert.Equal(t, exit.Unavailable, p.Wait(), "the key of the name is no lock")
				p.RequireOneLine("a hash, not a lock")
			})
		}
	}
}

// In a cluster a waiter subscribes by the kind of pub/sub that the flag, or the environment,
// names.
func TestPubSubMode(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	cluster := startCluster(t)
	env := []string{connect.URLVariable + "=" + clusterURL(cluster)}
	for mode, want := range map[string][2]int64{"auto": {0, 1}, "on": {0, 1}, "off": {1, 0}, "both": {1, 1}} {
		node := cluster.Owner(t, mode).Client(t)
		require.NoError(t, node.HSet(t.Context(), mode, java+":1", 1).Err())
		require.NoError(t, node.PExpire(t.Context(), mode, time.Hour).Err())
		waiting := make(chan error, 1)
		var stored connect.StoreFlags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		stored.Register(flags)
		require.NoError(t, flags.Parse([]string{"--pubsub", mode}))
		config, err := stored.Config()
		require.NoError(t, err)
		waiter, _ := newLocker(t, clusterClient(t, cluster, "", ""), config, lock.Config{})
		go func() { waiting <- waiter.Mutex(mode).Do(t.Context(), func(context.Context) error { return nil }) }()
		channel := "redisson_lock__channel:{" + mode + "}"
		commandtest.Eventually(t, "subscribed as "+mode, func() bool {
			plain := node.PubSubNumSub(t.Context(), channel).Val()[channel]
			return [2]int64{plain, node.PubSubShardNumSub(t.Context(), channel).Val()[channel]} == want
		})
		assert.Contains(t, commandtest.Ask(t, env, exit.OK, "unlock", "--force", "--pubsub", mode, mode), "taken from")
		require.NoError(t, <-waiting, mode)
	}
}

func TestStoreFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{runLock("job", sh("echo ran")), {"ls"}, {"inspect", "a"}, {"unlock", "--force", "a"}} {
		p := commandtest.Call(t, commandtest.Nowhere, append([]string{args[0], "--pubsub", "loud"}, args[1:]...)...)
		assert.Equal(t, exit.Usage, p.Wait())
		p.RequireOneLine(`--pubsub "loud": accepted are auto, on, off and both`)
		if args[0] == "ls" {
			continue // it takes no name
		}
		p = commandtest.Call(t, commandtest.Nowhere, append([]string{args[0], "--prefix", "a{b"}, args[1:]...)...)
		assert.Equal(t, exit.Usage, p.Wait())
		p.RequireOneLine("with the prefix a{b")
	}
}

// What no flag names, the environment does, for every command.
func TestVariables(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	commands(t, server.Client(t), "HSET x:job "+java+":1 1")
	t.Setenv(connect.URLVariable, "\n"+server.URL()+"\n")
	t.Setenv(connect.PrefixVariable, "x:")
	t.Setenv(connect.PubSubVariable, "both")
	for _, test := range []struct {
		args     []string
		contains string
	}{
		{[]string{"ls"}, "job "},
		{[]string{"inspect", "job"}, "kind    mutex"},
		{[]string{"watch", "-n", "1"}, "1 lock"},
		{[]string{"doctor", "job"}, server.URL()[len("unix://"):]},
		{[]string{cobra.ShellCompNoDescRequestCmd, "inspect", ""}, "job"},
		{[]string{"unlock", "--force", "job"}, "job: taken from"},
		{[]string{"queue", "put", "mails", "x"}, ": put"},
		{[]string{"acl", "orders:*"}, " ~x:orders:* "},
	} {
		p := commandtest.Call(t, nil, test.args...)
		assert.Contains(t, p.Stdout.String(), test.contains, test.args)
	}
	t.Setenv(connect.URLVariable, "redis://a redis://b")
	for _, args := range [][]string{
		runLock("job", sh("true")), {"ls"}, {"inspect", "a"}, {"unlock", "--force", "a"}, {"watch"}, {"doctor"}, {"queue", "stats", "a"}, {"bench", "lock"},
	} {
		p := commandtest.Call(t, nil, args...)
		assert.Equal(t, exit.Usage, p.Wait(), args)
		p.RequireOneLine("2 servers")
	}
	t.Setenv(connect.PubSubVariable, "loud")
	for _, args := range [][]string{runLock("job", sh("true")), {"ls"}, {"inspect", "a"}, {"unlock", "--force", "a"}} {
		p := commandtest.Call(t, nil, args...)
		assert.Equal(t, exit.Usage, p.Wait(), args)
		p.RequireOneLine(connect.PubSubVariable + ` "loud": accepted are auto, on, off and both`)
	}
}
