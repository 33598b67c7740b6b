package connect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
)

const (
	// maxPassword bounds the output of a password command and a password's file, in bytes.
	maxPassword = 64 << 10
	// passwordTimeout bounds a password command. Command lines of clouds take seconds.
	passwordTimeout = 10 * time.Second
	// passwordKept is how long a password is kept for the next connection if the one that
	// asked for it has given up: a request to the server takes less time than some commands.
	passwordKept = 10 * time.Second
)

// onePassword returns the password that text consists of: one line, with or without its
// end. Its errors do not quote it.
func onePassword(text []byte) (string, error) {
	password, _ := strings.CutSuffix(string(text), "\n")
	password, _ = strings.CutSuffix(password, "\r")
	switch {
	case len(text) > maxPassword:
		return "", fmt.Errorf("has more than %d bytes; accepted is one line, the password", maxPassword)
	case password == "":
		return "", errors.New("has no password; accepted is one line, the password")
	case strings.ContainsAny(password, "\r\n"):
		return "", errors.New("has more than one line; accepted is one line, the password")
	case !utf8.ValidString(password), strings.ContainsRune(password, 0):
		return "", errors.New("is no text; accepted is one line, the password")
	}
	return password, nil
}

// PasswordFromFile reads the password in a file that a flag names.
func PasswordFromFile(flag, file string) (string, error) {
	opened, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	defer opened.Close()
	text, err := io.ReadAll(io.LimitReader(opened, maxPassword+1))
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	password, err := onePassword(text)
	if err != nil {
		return "", fmt.Errorf("%s %s: the file %w", flag, file, err)
	}
	return password, nil
}

// passwordCommand is a command that prints the password, run once at a time. Connections
// that are made meanwhile share the run.
type passwordCommand struct {
	line  string
	limit time.Duration

	mu      sync.Mutex
	running *passwordRun // guarded by mu; nil if no connection can use it
}

// passwordRun is one run of a password command.
type passwordRun struct {
	done     chan struct{} // closed at its end
	password string
	err      error
	waiters  int       // guarded by the command's mu
	ended    time.Time // guarded by the command's mu; zero until its end
}

// password returns what the command prints now. If ctx ends first, the run goes on, and
// the next call has its result.
func (c *passwordCommand) password(ctx context.Context) (string, error) {
	run := c.join()
	select {
	case <-run.done:
		return run.password, run.err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		run.waiters--
		return "", fmt.Errorf("--store-password-command still runs: %w", context.Cause(ctx))
	}
}

// join returns the run that is under way, the last one if its result is unused, or a new
// one.
func (c *passwordCommand) join() *passwordRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	if run := c.running; run != nil && run.ended.IsZero() {
		run.waiters++
		return run
	}
	if run := c.takeKept(); run != nil {
		return run
	}
	run := &passwordRun{done: make(chan struct{}), waiters: 1}
	c.running = run
	go c.finish(run)
	return run
}

// takeKept returns the last run, once, if its result is unused and recent. The caller holds
// mu.
func (c *passwordCommand) takeKept() *passwordRun {
	run := c.running
	c.running = nil
	if run == nil || run.err != nil || time.Since(run.ended) >= passwordKept {
		return nil
	}
	return run
}

// finish executes the command. A result without a waiter is kept.
func (c *passwordCommand) finish(run *passwordRun) {
	run.password, run.err = c.execute()
	c.mu.Lock()
	defer c.mu.Unlock()
	run.ended = time.Now()
	if run.waiters > 0 {
		c.running = nil
	}
	close(run.done)
}

// execute runs the command and returns the line that it prints. Its standard error is
// dropped: it may contain the secret, or parts of it.
func (c *passwordCommand) execute() (string, error) {
	const flag = "--store-password-command"
	ctx, cancel := context.WithTimeout(context.Background(), c.limit)
	defer cancel()
	out := &boundedBuffer{most: maxPassword + 1}
	err := runLine(ctx, c.line, out)
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s did not end within %v", flag, c.limit)
	case errors.Is(err, syscall.ECHILD):
		// leasewheel run waits for every process that descends from it, and was faster.
	case err != nil:
		return "", fmt.Errorf("%s: %w; run it by hand to see its messages", flag, err)
	}
	password, err := onePassword(out.Bytes())
	if err != nil {
		return "", fmt.Errorf("%s: its output %w", flag, err)
	}
	return password, nil
}

// boundedBuffer keeps the first bytes that are written to it.
type boundedBuffer struct {
	bytes.Buffer
	most int
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), b.most-b.Len())])
	return len(p), nil
}

// ConnectionFlags are how to connect to the servers that URLs name. Child processes get
// them on their standard input.
type ConnectionFlags struct {
	CA         string `json:"ca,omitempty"` // PEM files for TLS
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
	ServerName string `json:"server_name,omitempty"`

	User                 string `json:"user,omitempty"`
	PasswordFile         string `json:"password_file,omitempty"`
	PasswordCommand      string `json:"password_command,omitempty"`
	SentinelUser         string `json:"sentinel_user,omitempty"`
	SentinelPasswordFile string `json:"sentinel_password_file,omitempty"`

	Piped string `json:"piped,omitempty"` // the password, if PasswordFile is a pipe, as of <(…): it can be read once
}

// validate checks the flags with each other and with the URL.
func (c *ConnectionFlags) validate(rawURL string) error {
	scheme, _, _ := strings.Cut(rawURL, "://")
	switch {
	case c.PasswordFile != "" && c.PasswordCommand != "":
		return errors.New("--store-password-file and --store-password-command exclude each other")
	case c.User != "" && c.PasswordFile+c.PasswordCommand == "":
		return errors.New("--store-user needs --store-password-file or --store-password-command; without them, the URL has the user")
	case c.SentinelUser != "" && c.SentinelPasswordFile == "":
		return errors.New("--store-sentinel-user needs --store-sentinel-password-file")
	case c.SentinelPasswordFile != "" && !strings.HasSuffix(scheme, "-sentinel"):
		return errors.New("--store-sentinel-password-file needs a redis-sentinel:// URL")
	case c.CA+c.Cert+c.Key+c.ServerName != "" && !byTLS(rawURL):
		return errors.New("--store-ca, --store-cert, --store-key and --store-server-name need a URL for TLS, such as rediss://")
	}
	return nil
}

// source returns what gives each new connection its user and password, or nil if the URL
// has them. It asks once, so that what is wrong with the flags is reported at once.
func (c *ConnectionFlags) source() (func(context.Context) (username, password string, err error), error) {
	switch {
	case c.PasswordFile != "":
		ask := func(context.Context) (username, password string, err error) {
			if c.Piped != "" {
				return c.User, c.Piped, nil
			}
			password, err = PasswordFromFile("--store-password-file", c.PasswordFile)
			return c.User, password, err
		}
		_, password, err := ask(context.Background())
		// The connections of an earlier server of a quorum may read it by now.
		if info, missing := os.Stat(c.PasswordFile); c.Piped == "" && missing == nil && !info.Mode().IsRegular() {
			c.Piped = password
		}
		return ask, err
	case c.PasswordCommand != "":
		command := &passwordCommand{line: c.PasswordCommand, limit: passwordTimeout}
		if err := command.try(); err != nil {
			return nil, &exit.Error{Code: exit.Unavailable, Err: err}
		}
		return func(ctx context.Context) (string, string, error) {
			password, err := command.password(ctx)
			return c.User, password, err
		}, nil
	}
	return nil, nil
}

// try runs the command, and keeps its result for the first connection.
func (c *passwordCommand) try() error {
	run := &passwordRun{done: make(chan struct{})}
	c.mu.Lock()
	c.running = run
	c.mu.Unlock()
	c.finish(run)
	return run.err
}
