package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "spin" {
		spin()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.Is(err, errFailed):
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, "trial:", err)
	os.Exit(2)
}

// run runs the command. Arguments after -args go to the tests.
func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: trial real [flags] [folders --] packages [-args ...], trial flakes [flags] packages [-args ...], or trial beside [flags] folders -- command")
	}
	mode, args := args[0], args[1:]
	var rest []string
	for i, arg := range args {
		if arg == "-args" {
			args, rest = args[:i], args[i+1:]
			break
		}
	}
	flags := flag.NewFlagSet("trial "+mode, flag.ContinueOnError)
	times := flags.Int("times", 1, "how often to run all tests")
	switch mode {
	case "real":
		only := flags.String("run", "", "run the tests that match this `regexp` alone")
		lanes := flags.Int("lanes", 3, "how many tests run at a time; one that fails is run again alone")
		retries := flags.Int("retries", 3, "how often to run a test again that fails while the machine stalls")
		least := flags.Duration("stall", 50*time.Millisecond, "the shortest stall that excuses a failure")
		limit := flags.Duration("timeout", 10*time.Minute, "the limit of a single run of a test")
		skip := flags.Bool("skip", os.Getenv("CI") != "true", "let tests pass that skip themselves; not the default if CI=true")
		if err := flags.Parse(args); err != nil {
			return err
		}
		if *lanes < 1 {
			return fmt.Errorf("-lanes %d: at least one test runs at a time", *lanes)
		}
		pattern, err := regexp.Compile(*only)
		if err != nil {
			return fmt.Errorf("-run: %w", err)
		}
		folder, remove, err := scratch()
		if err != nil {
			return err
		}
		defer remove()
		r := &realRun{times: *times, lanes: *lanes, retries: *retries, least: *least, limit: *limit, skip: *skip, only: pattern, args: rest, out: os.Stdout, folder: folder}
		folders, patterns := []string{"."}, flags.Args()
		if i := slices.Index(patterns, "--"); i >= 0 {
			folders, patterns = patterns[:i], patterns[i+1:]
		}
		return r.play(ctx, folders, patterns)
	case "flakes":
		loops := flags.Int("busy", 3, "loops that compute meanwhile, for each processor")
		if err := flags.Parse(args); err != nil {
			return err
		}
		f := &flakesRun{times: *times, loops: *loops, args: rest, out: os.Stdout}
		return f.play(ctx, flags.Args())
	case "beside":
		lanes := flags.Int("lanes", 3, "how many run at a time")
		if err := flags.Parse(args); err != nil {
			return err
		}
		b, err := newBeside(*lanes, flags.Args(), os.Stdout)
		if err != nil {
			return err
		}
		return b.play(ctx)
	}
	return fmt.Errorf("no command %q: there are real, flakes and beside", mode)
}
