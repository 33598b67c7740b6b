package locktest_test

import (
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// never is longer than any bound.
const never = time.Hour

// caller is the context of a call.
type caller struct {
	name      string
	ends      time.Duration // after the begin of the call
	cancelled bool          // instead of a deadline
}

var callers = []caller{
	{"50ms", 50 * time.Millisecond, false},
	{"RequestTimeout", requestTimeout, false},
	{"none", time.Minute, true}, // a call that waits ends nevertheless
}

func (c caller) context() (context.Context, context.CancelFunc) {
	if !c.cancelled {
		return context.WithTimeout(context.Background(), c.ends)
	}
	ctx, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(c.ends, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// over is when the last request that the context allows is over. A cancelled context does
// not end one in flight.
func (c caller) over() time.Duration {
	if c.cancelled {
		return c.ends + driver.DefaultRequestTimeout
	}
	return c.ends
}

// faults are the servers of the test.
var faults = map[string]fault{
	"mute":       {mute: true},
	"late reset": {mute: true, reset: 700 * time.Millisecond},
	"one answer": {mute: true, after: 1}, // mute after that
	"slow":       {delay: 700 * time.Millisecond},
}

var everyContext = flag.Bool("every-context", false, "have TestEveryCallKeepsItsBound make each call on each server with every context, not with one")

// contexts returns the contexts of a call on the n-th server. A call meets each of them on
// one server at least.
func (c boundedCall) contexts(n int) []caller {
	bounded := slices.DeleteFunc(slices.Clone(callers), func(of caller) bool { return c.bound.of(of) == unbounded })
	if *everyContext {
		return bounded
	}
	return bounded[n%len(bounded):][:1]
}

// cell is a call on a server with a context.
type cell struct {
	call, server string
	caller       caller
}

// Every method that takes a context, or that ends something, keeps its documented bound,
// whatever the server does. With -v it prints how long each takes.
func TestEveryCallKeepsItsBound(t *testing.T) {
	calls := calls()
	var mu sync.Mutex
	took := map[cell]time.Duration{}
	t.Run("calls", func(t *testing.T) {
		for name, c := range calls {
			for n, server := range slices.Sorted(maps.Keys(faults)) {
				fault := faults[server]
				for _, caller := range c.contexts(n + len(name)) {
					t.Run(name+"/"+server+"/"+caller.name, func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							p := newProcess(t)
							d := p.call(fault, caller, c.prepare(p))
							p.work.Wait()
							mu.Lock()
							defer mu.Unlock()
							took[cell{name, server, caller}] = d
							limit := c.bound.of(caller)
							assert.LessOrEqual(t, d, limit, "the bound is: %s", c.bound.text)
							if limit > 0 && fault.mute && fault.after == 0 {
								assert.NotZero(t, d, "the call has sent nothing")
							}
						})
					})
				}
			}
		}
	})
	if testing.Verbose() {
		printBounds(calls, took)
	}
}

// printBounds prints how long the calls took, and by how much the longest exceeds its bound.
func printBounds(calls map[string]boundedCall, took map[cell]time.Duration) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprint(w, "method\tbound")
	servers := slices.Sorted(maps.Keys(faults))
	for _, server := range servers {
		for _, c := range callers {
			fmt.Fprintf(w, "\t%s, %s", server, c.name)
		}
	}
	fmt.Fprintln(w, "\tworst excess")
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		fmt.Fprintf(w, "%s\t%s", name, calls[name].bound.text)
		worst := -never
		for _, server := range servers {
			for _, c := range callers {
				d, measured := took[cell{name, server, c}]
				if !measured {
					fmt.Fprint(w, "\t-")
					continue
				}
				fmt.Fprintf(w, "\t%v", d.Round(time.Millisecond))
				worst = max(worst, d-calls[name].bound.of(c))
			}
		}
		fmt.Fprintf(w, "\t%v\n", worst)
	}
}

// A method that is added needs a call above.
func TestEveryBoundedMethodHasACall(t *testing.T) {
	var called, methods []string
	for name := range calls() {
		method, _, _ := strings.Cut(name, " ")
		called = append(called, method)
	}
	for _, folder := range []string{"..", "../delayqueue", "../elect", "../quorum", "../redisstore"} {
		methods = append(methods, boundedMethods(t, folder)...)
	}
	slices.Sort(called)
	slices.Sort(methods)
	require.NotEmpty(t, methods)
	assert.Equal(t, methods, slices.Compact(called))
}

// boundedMethods returns the exported functions of a package, and the methods of its
// exported types, that take a context or end something, as package.Type.Method.
func boundedMethods(t *testing.T, folder string) (bounded []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	fset, files := token.NewFileSet(), []*ast.File(nil)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	// Only the types of this package count, so its imports may be empty, but for context.
	config := types.Config{Importer: noImports{}, IgnoreFuncBodies: true, Error: func(error) {}}
	pkg, _ := config.Check(folder, fset, files, nil)
	for _, name := range pkg.Scope().Names() {
		switch o := pkg.Scope().Lookup(name).(type) {
		case *types.Func:
			if o.Exported() && isBounded(o) {
				bounded = append(bounded, pkg.Name()+"."+name)
			}
		case *types.TypeName:
			if !o.Exported() || o.IsAlias() || types.IsInterface(o.Type()) {
				continue
			}
			for method := range types.NewMethodSet(types.NewPointer(o.Type())).Methods() {
				if m := method.Obj().(*types.Func); m.Exported() && isBounded(m) {
					bounded = append(bounded, pkg.Name()+"."+name+"."+m.Name())
				}
			}
		}
	}
	return bounded
}

// isBounded reports whether a function takes a context, or ends something.
func isBounded(f *types.Func) bool {
	for param := range f.Signature().Params().Variables() {
		if param.Type().String() == "context.Context" {
			return true
		}
	}
	return slices.Contains([]string{"Cancel", "Close", "Release", "Shutdown", "Stop", "Unlock"}, f.Name())
}

// noImports imports empty packages, but a context.Context.
type noImports struct{}

func (noImports) Import(path string) (*types.Package, error) {
	pkg := types.NewPackage(path, filepath.Base(path))
	if path == "context" {
		name := types.NewTypeName(token.NoPos, pkg, "Context", nil)
		types.NewNamed(name, types.NewInterfaceType(nil, nil), nil)
		pkg.Scope().Insert(name)
	}
	pkg.MarkComplete()
	return pkg, nil
}
