//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/queue"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// openMails returns the queue called mails over client.
func openMails(t *testing.T, client redis.UniversalClient) *delayqueue.Queue {
	t.Helper()
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	q, err := delayqueue.New(store, "mails", delayqueue.Config{RequestTimeout: commandtest.Patience, RetryFor: commandtest.Patience})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, q.Shutdown(context.Background()))
		assert.NoError(t, store.Close())
	})
	return q
}

// fillMails makes two dead letters, a message with a worker until the test's end, and
// three that wait.
func fillMails(t *testing.T, q *delayqueue.Queue) {
	t.Helper()
	for _, id := range []string{"dead1", "dead2"} {
		_, err := q.Put(t.Context(), delayqueue.Message{ID: id, Payload: []byte("x")})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		require.NoError(t, q.Work(ctx, func(context.Context, *delayqueue.Delivery) error {
			return delayqueue.Reject(errors.New("no such address\x1b[2J"))
		}, delayqueue.WorkerConfig{Report: func(delayqueue.Report) { stop() }}))
	}
	_, err := q.Put(t.Context(), delayqueue.Message{ID: "leased"})
	require.NoError(t, err)
	begun, end, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		ended <- q.Work(ctx, func(context.Context, *delayqueue.Delivery) error {
			close(begun)
			<-end
			return nil
		}, delayqueue.WorkerConfig{Concurrency: 1, TTL: time.Hour})
	}()
	<-begun
	t.Cleanup(func() {
		stop()
		close(end)
		assert.NoError(t, <-ended)
	})
	_, err = q.PutAll(t.Context(), []delayqueue.Message{
		{ID: "ready", Payload: []byte("hello")},
		{ID: "later", Payload: []byte(strings.Repeat("ü", 50)), Delay: 2 * time.Hour},
		{ID: "soon", Payload: []byte("\x1b]0;evil\a\u202e\xff"), Delay: time.Hour},
	})
	require.NoError(t, err)
}

// requireSchema checks each line of a report against its description in docs/.
func requireSchema(t *testing.T, report, text string) {
	t.Helper()
	s := commandtest.ReadSchema(t, report)
	decoder := json.NewDecoder(strings.NewReader(text))
	for decoder.More() {
		var document any
		require.NoError(t, decoder.Decode(&document))
		require.Empty(t, s.Faults("", document), text)
		require.Empty(t, s.Unnamed("", document), text)
	}
}

// anyInstant replaces the instants in an output, at their width in a table.
func anyInstant(text string) string {
	return regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`).ReplaceAllString(text, "YYYY-MM-DDThh:mm:ssZ")
}

// What follows the name of a queue is no flag, whatever it begins with: producers choose ids and
// payloads, and the examples pass them on.
func TestQueueTakesNoFlagsFromProducers(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	q, file := openMails(t, server.Client(t)), filepath.Join(t.TempDir(), "touched")
	evil := []string{"--all", "--help", "--store-password-command=touch " + file}
	for _, id := range evil {
		assert.Contains(t, commandtest.Ask(t, env, exit.OK, "queue", "put", "--id", id, "mails", id), id+": put")
		info, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, id, string(info.Payload))
		assert.Equal(t, id+": no dead letter has this id\n", commandtest.Ask(t, env, exit.NotDone, "queue", "revive", "mails", id))
		assert.Equal(t, id+": dropped\n", commandtest.Ask(t, env, exit.OK, "queue", "cancel", "mails", "--", id))
	}
	assert.NoFileExists(t, file)
}

// The lists show each message, safely for a terminal, with the first bytes of its payload.
func TestQueueLists(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	assert.Empty(t, commandtest.Ask(t, env, exit.OK, "queue", "ls", "mails"))
	assert.Empty(t, commandtest.Ask(t, env, exit.OK, "queue", "dead", "--json", "mails"))
	q := openMails(t, server.Client(t))
	fillMails(t, q)

	assert.Equal(t, `ID      STATE    TIME                        ATTEMPTS  PAYLOAD
ready   ready    due YYYY-MM-DDThh:mm:ssZ    0         hello
soon    delayed  due YYYY-MM-DDThh:mm:ssZ    0         "\x1b]0;evil\a\u202e\xff"
later   delayed  due YYYY-MM-DDThh:mm:ssZ    0         üüüüüüüüüüüüüüüüüüüüüüüüüüüüüüüü… +36
leased  leased   until YYYY-MM-DDThh:mm:ssZ  1         -
dead1   dead     died YYYY-MM-DDThh:mm:ssZ   1         x
dead2   dead     died YYYY-MM-DDThh:mm:ssZ   1         x
`, anyInstant(commandtest.Ask(t, env, exit.OK, "queue", "ls", "mails")))
	assert.Equal(t, `ID     DIED                  ATTEMPTS  ERROR                     PAYLOAD
dead1  YYYY-MM-DDThh:mm:ssZ  1         "no such address\x1b[2J"  x
dead2  YYYY-MM-DDThh:mm:ssZ  1         "no such address\x1b[2J"  x
`, anyInstant(commandtest.Ask(t, env, exit.OK, "queue", "dead", "mails")))
	assert.Equal(t, "ID\nsoon\nlater\nand\n", commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, "queue", "ls", "--state", "delayed,leased", "--limit", "2", "mails")))

	lines := commandtest.Ask(t, env, exit.OK, "queue", "ls", "--json", "--limit", "0", "--payload", "7", "mails")
	requireSchema(t, "queue-message", lines)
	assert.Equal(t, 6, strings.Count(lines, "\n"))
	assert.Contains(t, lines, `"payload_bytes":100,"payload":"üüü"}`, "no half of a character")
	assert.Contains(t, lines, `"payload":"\u001b]0;evi"}`)
	assert.Contains(t, lines, `"error":"no such address\u001b[2J"`)
	whole := commandtest.Ask(t, env, exit.OK, "queue", "ls", "--json", "--state", "delayed", "mails")
	requireSchema(t, "queue-message", whole)
	assert.Contains(t, whole, `"payload_base64":"G10wO2V2aWwH4oCu/w=="}`)
	assert.NotContains(t, lines+whole, "\x1b")
	none := commandtest.Ask(t, env, exit.OK, "queue", "ls", "--json", "--payload", "0", "--state", "ready", "mails")
	assert.Contains(t, none, `"payload_bytes":5,"payload":""}`)
	letters := commandtest.Ask(t, env, exit.OK, "queue", "dead", "--json", "mails")
	requireSchema(t, "queue-message", letters)
	assert.Equal(t, 2, strings.Count(letters, `"state":"dead"`))
}

// Text is shown as it is, JSON too, unless a terminal might act upon it or it would be read
// as quoted.
func TestQueueListsShowTextAsItIs(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	q := openMails(t, server.Client(t))
	for payload, shown := range map[string]string{
		`{"to": "ada", "path": "C:\\x"}`: `{"to": "ada", "path": "C:\\x"}`,
		`it's "quoted"`:                  `it's "quoted"`,
		`"a string"`:                     `"\"a string\""`,
		"{\"a\": \"\x1b[31m\"}":          `"{\"a\": \"\x1b[31m\"}"`,
		"{\"a\":\n\"b\"}":                `"{\"a\":\n\"b\"}"`,
	} {
		_, err := q.Put(t.Context(), delayqueue.Message{ID: "m", Payload: []byte(payload)})
		require.NoError(t, err)
		line, _ := strings.CutPrefix(commandtest.Ask(t, env, exit.OK, "queue", "ls", "mails"), "ID  STATE  TIME                      ATTEMPTS  PAYLOAD\n")
		assert.True(t, strings.HasSuffix(line, "  "+shown+"\n"), "%q", line)
		require.NoError(t, q.Cancel(t.Context(), "m"))
	}
}

// A large payload is read by the server and not sent, and any number of messages is
// listed.
func TestQueueListOfMany(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	q := openMails(t, client)
	var messages []delayqueue.Message
	for n := range 2500 {
		messages = append(messages, delayqueue.Message{ID: fmt.Sprint("m", n), Delay: time.Hour})
	}
	messages[7].Payload = make([]byte, 1<<20)
	_, err := q.PutAll(t.Context(), messages)
	require.NoError(t, err)
	rows := commandtest.AskLines(t, env, "queue", "ls", "--limit", "0", "mails")
	assert.Len(t, rows, 2500+3, "with three headings")
	assert.Less(t, len(strings.Join(rows, "")), 500_000)
	assert.Len(t, commandtest.AskLines(t, env, "queue", "ls", "--json", "--limit", "0", "mails"), 2500)
	assert.Equal(t, 102, strings.Count(commandtest.Ask(t, env, exit.OK, "queue", "ls", "mails"), "\n"))
}

func TestQueueStats(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	assert.Equal(t, "queue    mails\nready    0\ndelayed  0\nleased   0\ndead     0\n", commandtest.Ask(t, env, exit.OK, "queue", "stats", "mails"))
	fillMails(t, openMails(t, server.Client(t)))
	assert.Regexp(t, `^queue      mails
ready      1, for \S+
delayed    2
leased     1
dead       2, since 20\S+Z
first due  20\S+Z
$`, commandtest.Ask(t, env, exit.OK, "queue", "stats", "mails"))
	text := commandtest.Ask(t, env, exit.OK, "queue", "stats", "--json", "mails")
	requireSchema(t, "queue-stats", text)
	var report queue.StatsReport
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	assert.Equal(t, [4]int64{1, 2, 1, 2}, [4]int64{report.Ready, report.Delayed, report.Leased, report.Dead})
	requireSchema(t, "queue-stats", commandtest.Ask(t, env, exit.OK, "queue", "stats", "--json", "other"))
}

// Revive and cancel print what became of each id, and have an exit code for ids that they
// could not change.
func TestQueueChanges(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	q := openMails(t, server.Client(t))
	fillMails(t, q)
	assert.Equal(t, "dead1: revived\nready: no dead letter has this id\n", commandtest.Ask(t, env, exit.NotDone, "queue", "revive", "mails", "dead1", "ready"))
	assert.Equal(t, "dead2: revived\n", commandtest.Ask(t, env, exit.OK, "queue", "revive", "--all", "mails"))
	assert.Empty(t, commandtest.Ask(t, env, exit.OK, "queue", "revive", "--all", "mails"))
	assert.Equal(t, "dead1: dropped\nleased: a worker has it; it was left alone\nnothing: no message has this id\ndead2: dropped\n",
		commandtest.Ask(t, env, exit.NotDone, "queue", "cancel", "mails", "dead1", "leased", "nothing", "dead2"))
	text := commandtest.Ask(t, env, exit.NotDone, "queue", "cancel", "--json", "mails", "soon", "later", "leased", "nothing")
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		want := [][2]string{{"soon", "cancelled"}, {"later", "cancelled"}, {"leased", "leased"}, {"nothing", "not found"}}[i]
		assert.JSONEq(t, fmt.Sprintf(`{"id":%q,"outcome":%q}`, want[0], want[1]), line)
	}
	requireSchema(t, "queue-change", text)
	requireSchema(t, "queue-change", commandtest.Ask(t, env, exit.NotDone, "queue", "revive", "--json", "mails", "ready"))

	p := commandtest.Call(t, env, "queue", "cancel", "mails", "ready", "a\nb")
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("control character")
	_, err := q.Get(t.Context(), "ready")
	require.NoError(t, err, "nothing was done")
}

// Put takes the payload from the argument, a file or standard input, and a worker of the
// library gets it.
func TestQueuePut(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	q := openMails(t, server.Client(t))
	payload := func(id string) string {
		t.Helper()
		info, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		return string(info.Payload)
	}
	id, _, found := strings.Cut(commandtest.Ask(t, env, exit.OK, "queue", "put", "mails", "hello"), ": put\n")
	require.True(t, found)
	assert.Equal(t, "hello", payload(id))
	file := filepath.Join(t.TempDir(), "payload")
	require.NoError(t, os.WriteFile(file, []byte("from a \x00 file"), 0o600))
	assert.Equal(t, "a: put\n", commandtest.Ask(t, env, exit.OK, "queue", "put", "--id", "a", "--payload-file", file, "--delay", "1d12h", "mails"))
	assert.Equal(t, "from a \x00 file", payload("a"))
	info, err := q.Get(t.Context(), "a")
	require.NoError(t, err)
	assert.Equal(t, 36*time.Hour, info.Due.Sub(info.Put).Truncate(time.Second))
	assert.Equal(t, "a: the queue has a message of this id already\n", commandtest.Ask(t, env, exit.NotDone, "queue", "put", "--id", "a", "mails", "x"))

	due := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	p := commandtest.CallWith(t, env, "from a pipe", "queue", "put", "--json", "--id", "b", "--payload-file", "-", "--due", due.In(time.FixedZone("", 3600)).Format(time.RFC3339), "mails")
	require.Equal(t, exit.OK, p.Wait(), p.Stderr)
	assert.JSONEq(t, `{"id":"b","outcome":"put"}`, p.Stdout.String())
	assert.Equal(t, "from a pipe", payload("b"))
	info, err = q.Get(t.Context(), "b")
	require.NoError(t, err)
	assert.True(t, info.Due.Equal(due), info.Due)
	requireSchema(t, "queue-change", p.Stdout.String())
	requireSchema(t, "queue-change", commandtest.Ask(t, env, exit.NotDone, "queue", "put", "--json", "--id", "b", "mails"))
}

// Ids and records that other clients wrote are shown safely, and stop no command.
func TestQueueOfHostileClients(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	client := server.Client(t)
	ctx := t.Context()
	for _, id := range []string{"evil\x1b[31m\u202e\nname", strings.Repeat("x", 100_000), "\xff\xfe", "in  two"} {
		require.NoError(t, client.ZAdd(ctx, "leasewheel_queue_dead:{mails}", redis.Z{Score: 1e15, Member: id}).Err())
		require.NoError(t, client.HSet(ctx, "leasewheel_queue_record:{mails}", id, "1 1 1 1 n \x1b]0;title\a"+strings.Repeat("y", 3000)).Err())
		require.NoError(t, client.HSet(ctx, "leasewheel_queue_payload:{mails}", id, strings.Repeat("\x1b", 1000)).Err())
	}
	for _, args := range [][]string{{"ls", "mails"}, {"dead", "mails"}, {"ls", "--json", "mails"}, {"revive", "--all", "mails"}, {"stats", "mails"}} {
		text := commandtest.Ask(t, env, exit.OK, append([]string{"queue"}, args...)...)
		assert.NotContains(t, text, "\x1b")
		assert.NotContains(t, text, "\u202e")
		assert.NotContains(t, text, "\a")
		assert.Less(t, len(text), 20_000)
		if args[1] == "--json" {
			requireSchema(t, "queue-message", text)
		}
	}
	require.NoError(t, client.Del(ctx, "leasewheel_queue_dead:{mails}").Err())
	require.NoError(t, client.Set(ctx, "leasewheel_queue_dead:{mails}", "x", 0).Err())
	for _, command := range []string{"ls", "dead", "stats"} {
		p := commandtest.Call(t, env, "queue", command, "mails")
		assert.Equal(t, exit.Unavailable, p.Wait())
		p.RequireOneLine("WRONGTYPE")
	}
}

// Every misuse is one line and exit code 64, and a server that does not answer one line
// and 69, without a password.
func TestQueueTrouble(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		`unknown command "frob"`:      {"frob"},
		"the NAME of one queue":       {"stats"},
		"ls takes the NAME of one":    {"ls", "a", "b"},
		"lone brace":                  {"stats", "a{b"},
		`--state "gone": accepted`:    {"ls", "--state", "gone", "a"},
		"--limit -1: accepted":        {"ls", "--limit", "-1", "a"},
		"--payload 1000001: accepted": {"dead", "--payload", "1000001", "a"},
		"ID is missing":               {"revive", "a"},
		"exclude each other":          {"revive", "--all", "a", "b"},
		"the IDs of messages":         {"cancel", "a"},
		"one PAYLOAD, got 2":          {"put", "a", "b", "c"},
		"an id or a payload":          {"put", "a"},
		"both a Delay and a Due":      {"put", "--delay", "1s", "--due", "2040-01-02T03:04:05Z", "a", "b"},
		`--due "soon": accepted`:      {"put", "--due", "soon", "a", "b"},
		"no such file":                {"put", "--payload-file", "/nowhere", "a"},
		"--id is empty":               {"put", "--id", "", "a", "b"},
		"--due is empty":              {"put", "--due", "", "a", "b"},
		"--payload-file is empty":     {"put", "--id", "a", "--payload-file", "", "a"},
		"--state is empty":            {"ls", "--state", "", "a"},
		"accepted are 0":              {"put", "--delay", "999999h", "a", "b"},
	} {
		t.Run(says, func(t *testing.T) {
			p := commandtest.Call(t, commandtest.Nowhere, append([]string{"queue"}, args...)...)
			assert.Equal(t, exit.Usage, p.Wait())
			p.RequireOneLine(says)
			assert.Empty(t, p.Stdout.String())
		})
	}
	for _, args := range [][]string{{"ls", "a"}, {"dead", "a"}, {"stats", "a"}, {"put", "a", "b"}, {"revive", "a", "b"}, {"revive", "--all", "a"}, {"cancel", "a", "b"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel() // it is tried again for a while
			p := commandtest.Call(t, commandtest.Nowhere, append([]string{"queue"}, args...)...)
			assert.Equal(t, exit.Unavailable, p.Wait())
			p.RequireOneLine("server 127.0.0.1:1: ")
			assert.Empty(t, p.Stdout.String())
			p = commandtest.Call(t, nil, append([]string{"queue"}, args...)...)
			assert.Equal(t, exit.Usage, p.Wait())
			p.RequireOneLine("no server")
		})
	}
}

// The commands work in a cluster, with the rights of SECURITY.md alone.
func TestQueueInACluster(t *testing.T) {
	t.Parallel()
	rules := leastUser(t, "queue", "cluster")
	cluster := startCluster(t, strings.Join(rules, " "))
	url := strings.Replace(clusterURL(cluster), "redis-cluster://", "redis-cluster://"+rules[0]+":secret@", 1)
	env := []string{connect.URLVariable + "=" + url}
	assert.Equal(t, "a: put\n", commandtest.Ask(t, env, exit.OK, "queue", "put", "--id", "a", "orders:mails"))
	assert.Equal(t, "b: put\n", commandtest.Ask(t, env, exit.OK, "queue", "put", "--id", "b", "--delay", "1h", "orders:mails"))
	assert.Equal(t, "ID\na\nb\n", commandtest.FirstColumn(commandtest.Ask(t, env, exit.OK, "queue", "ls", "orders:mails")))
	assert.Empty(t, commandtest.Ask(t, env, exit.OK, "queue", "dead", "orders:mails"))
	assert.Contains(t, commandtest.Ask(t, env, exit.OK, "queue", "stats", "orders:mails"), "ready      1, for")
	commandtest.Ask(t, env, exit.NotDone, "queue", "revive", "orders:mails", "a")
	assert.Equal(t, "a: dropped\n", commandtest.Ask(t, env, exit.OK, "queue", "cancel", "orders:mails", "a"))
	for _, node := range cluster.Nodes {
		assert.Empty(t, refused(t, node.Client(t)))
	}
}
