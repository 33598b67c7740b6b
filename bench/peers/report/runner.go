package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// implementations are in the order of the tables. Netty's is a program of its own.
var implementations = []string{
	"wheel", "runtime", "russellluo", "antlabs", "ouqiang", "rfyiamcool", "gozero", "singchia", "netty",
}

// lockImplementations are those of locks, in the order of the tables.
var lockImplementations = []string{
	"leasewheel", "leasewheel-plain", "leasewheel-passing", "leasewheel-fair", "redsync", "redsync-tuned", "redislock", "redislock-tuned",
	"rueidislock", "rueidislock-tuned", "directed", "blpop", "grouped", "autopipelined",
}

// quorumImplementations are those of locks on a majority of servers.
var quorumImplementations = []string{"leasewheel", "leasewheel-loose", "redsync"}

// queueImplementations are those of delay queues.
var queueImplementations = []string{"delayqueue"}

// Where the benchmarks are.
const (
	timersPackage = "github.com/leasewheel/leasewheel/bench/peers"
	locksPackage  = timersPackage + "/locks"
	quorumPackage = timersPackage + "/quorum"
	queuePackage  = "github.com/leasewheel/leasewheel/lock/delayqueue"
)

// A workload is a benchmark, for all implementations that have it.
type workload struct {
	name string
	// impls that have it, or nil for all.
	impls []string
	// once means that one run of the workload is one sample, of any duration.
	once bool
	// benchtime is how often the operation is measured; the option if empty.
	benchtime string
	// idle means that the processes hardly use the processor, so all implementations are
	// measured at the same time.
	idle bool
	// procs are the values of GOMAXPROCS to run with, or "" for the default.
	procs string
	// netty lists the variants that the program for Netty supports.
	netty []string
	// pkg has the benchmark; the package of timers if empty.
	pkg string
}

var workloads = []workload{
	{name: "Schedule", netty: []string{"pending=1k", "pending=100k", "pending=1M"}},
	{name: "ScheduleCancel", netty: []string{"pending=1k", "pending=100k", "pending=1M"}},
	{name: "ScheduleCancelParallel", procs: "1,2"},
	{name: "Churn", netty: []string{""}},
	{name: "Rearm", impls: []string{"wheel", "runtime"}},
	{name: "CancelArm", impls: []string{"wheel", "runtime"}},
	{name: "Embedded", impls: []string{"wheel", "runtime"}},
	{name: "RearmParallel", impls: []string{"wheel", "runtime"}, procs: "1,2"},
	{name: "Reset", impls: []string{"wheel", "wheel-timer", "runtime", "gozero", "singchia"}},
	{name: "ResetAt", impls: []string{"wheel", "wheel-timer"}},
	{name: "Memory", once: true, netty: []string{""}},
	{name: "Collect", impls: []string{"none", "wheel", "runtime", "russellluo", "antlabs", "ouqiang", "rfyiamcool", "gozero", "singchia"}},
	{name: "Burst", once: true, netty: []string{""}},
	{name: "Spread", once: true, netty: []string{""}},
	{name: "SelfRearm", once: true, netty: []string{"tick=10ms", "tick=100ms"}},
	{name: "Early", once: true, netty: []string{""}},
	{name: "Lateness", impls: []string{"wheel", "wheel-precise", "runtime", "russellluo"}, once: true,
		netty: []string{"tick=1ms/load=idle", "tick=10ms/load=idle", "tick=1ms/load=busy", "tick=10ms/load=busy"}},
	{name: "Pause", once: true, idle: true},
	{name: "Idle", once: true, idle: true,
		netty: []string{"pending=0/tick=1ms", "pending=0/tick=10ms", "pending=1000/tick=1ms", "pending=1000/tick=10ms"}},
	{name: "Pairs", impls: lockImplementations, once: true, pkg: locksPackage},
	{name: "Budget", impls: budgetImplementations, once: true, pkg: locksPackage},
	{name: "Apart", impls: apartImplementations, once: true, pkg: locksPackage},
	{name: "HandOver", impls: slices.DeleteFunc(slices.Clone(lockImplementations), func(impl string) bool { return impl == "autopipelined" }),
		once: true, pkg: locksPackage},
	{name: "Names", impls: []string{"leasewheel", "leasewheel-plain", "redsync"}, once: true, pkg: locksPackage},
	{name: "Left", impls: leftImplementations, once: true, pkg: locksPackage},
	{name: "Waiters", impls: []string{"leasewheel", "leasewheel-plain", "rueidislock", "directed"}, once: true, pkg: locksPackage},
	{name: "Held", impls: heldImplementations, once: true, pkg: locksPackage},
	{name: "Quorum", impls: quorumImplementations, once: true, pkg: quorumPackage},
	{name: "QuorumIll", impls: quorumImplementations, once: true, pkg: quorumPackage},
	{name: "Messages", impls: queueImplementations, benchtime: "20000x", pkg: queuePackage},
	{name: "MessageLateness", impls: queueImplementations, benchtime: "10000x", pkg: queuePackage},
}

// A runner runs the workloads, round after round.
type runner struct {
	*options
	binaries map[string]string // the compiled benchmarks, by package
	netty    string            // class path with Netty's wheel, or "" if there is none
}

func newRunner(o *options) *runner {
	r := &runner{options: o}
	jar, err := findNetty()
	if err != nil {
		fmt.Fprintln(os.Stderr, "report: Netty's wheel is left out:", err)
	}
	r.netty = jar
	return r
}

// findNetty returns the jar that holds Netty's HashedWheelTimer.
func findNetty() (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", err
	}
	for _, jar := range []string{os.Getenv("NETTY_JAR"), "/usr/share/java/netty-common.jar"} {
		if _, err := os.Stat(jar); jar != "" && err == nil {
			return jar, nil
		}
	}
	return "", fmt.Errorf("no netty-common.jar: install libnetty-java, or set NETTY_JAR")
}

// all returns the lines of all rounds.
func (r *runner) all(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "leasewheel-bench")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := r.build(ctx, dir); err != nil {
		return "", err
	}
	var lines strings.Builder
	for round := range r.count {
		for _, w := range workloads {
			if !r.only.MatchString(w.name) {
				continue
			}
			began := time.Now()
			fmt.Fprintf(os.Stderr, "round %d/%d %s … ", round+1, r.count, w.name)
			if err := r.workload(ctx, w, round, &lines); err != nil {
				return "", err
			}
			fmt.Fprintf(os.Stderr, "%v\n", time.Since(began).Round(time.Second))
		}
	}
	return lines.String(), nil
}

// build compiles the benchmarks and runs their checks of every implementation.
func (r *runner) build(ctx context.Context, dir string) error {
	r.binaries = make(map[string]string)
	for _, w := range workloads {
		if r.binaries[w.pkg] != "" || !r.only.MatchString(w.name) {
			continue
		}
		binary := filepath.Join(dir, fmt.Sprintf("%d.test", len(r.binaries)))
		build := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, cmp.Or(w.pkg, timersPackage))
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build the benchmarks: %w", err)
		}
		r.binaries[w.pkg] = binary
		if w.pkg == queuePackage {
			continue // its tests are those of the queue, and many
		}
		check := r.command(ctx, binary, "-test.run=.")
		if output, err := check.Output(); err != nil {
			return failure(check, output, err)
		}
	}
	return nil
}

// guest reports whether an implementation is shown only, and in no limit.
func guest(impl string) bool {
	return !strings.HasPrefix(impl, "wheel") && impl != "runtime" && impl != "netty" && impl != "none" &&
		!slices.Contains(slices.Concat(lockImplementations, quorumImplementations, queueImplementations), impl)
}

// workload runs one workload for all its implementations that take part in the
// round.
func (r *runner) workload(ctx context.Context, w workload, round int, lines *strings.Builder) error {
	var commands []*exec.Cmd
	absent := func(impl string) bool { return round >= r.guests && guest(impl) }
	for _, impl := range implementations {
		switch {
		case absent(impl):
		case impl == "netty":
			commands = append(commands, r.nettyCommands(ctx, w)...)
		case w.impls == nil:
			commands = append(commands, r.goCommand(ctx, w, impl))
		}
	}
	for _, impl := range w.impls {
		if !absent(impl) {
			commands = append(commands, r.goCommand(ctx, w, impl))
		}
	}
	outputs := make([][]byte, len(commands))
	errs := make([]error, len(commands))
	var running sync.WaitGroup
	for i, cmd := range commands {
		running.Go(func() { outputs[i], errs[i] = cmd.Output() })
		if !w.idle {
			running.Wait()
		}
	}
	running.Wait()
	for i, output := range outputs {
		if errs[i] != nil {
			return failure(commands[i], output, errs[i])
		}
		for line := range bytes.Lines(output) {
			if bytes.HasPrefix(line, []byte("Benchmark")) {
				lines.Write(line)
			}
		}
	}
	return nil
}

// failure returns an error with the output of a command that failed.
func failure(cmd *exec.Cmd, output []byte, err error) error {
	var stderr []byte
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		stderr = exit.Stderr
	}
	return fmt.Errorf("%v: %w\n%s%s", cmd.Args, err, output, stderr)
}

func (r *runner) goCommand(ctx context.Context, w workload, impl string) *exec.Cmd {
	benchtime := r.benchtime.String()
	switch {
	case w.once:
		benchtime = "1x"
	case w.benchtime != "":
		benchtime = w.benchtime
	}
	args := []string{
		"-test.run=^$", "-test.timeout=1h", "-test.benchtime=" + benchtime,
		fmt.Sprintf("-test.bench=^Benchmark%s$/^impl=%s$", w.name, impl),
	}
	if w.procs != "" {
		args = append(args, "-test.cpu="+w.procs)
	}
	return r.command(ctx, r.binaries[w.pkg], args...)
}

func (r *runner) nettyCommands(ctx context.Context, w workload) []*exec.Cmd {
	var commands []*exec.Cmd
	for _, variant := range w.netty {
		if r.netty == "" {
			break
		}
		name := strings.TrimSuffix(w.name+"/"+variant, "/")
		commands = append(commands, r.command(ctx, "java", "-cp", r.netty,
			"netty/NettyBench.java", name, fmt.Sprint(r.benchtime.Seconds())))
	}
	return commands
}

func (r *runner) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	// Processes that a child leaves behind must not keep the pipe open.
	cmd.WaitDelay = time.Minute
	return cmd
}
