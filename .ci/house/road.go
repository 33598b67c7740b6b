package main

import (
	"bufio"
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

//go:embed probe.go.txt
var probe []byte

//go:embed tracer.go.txt
var tracer []byte

// passed are the folders whose functions are on a road.
var passed = []string{"lock", "wheel", "renewal"}

// A road is what a call enters, in the order of time: all goroutines together.
type road struct {
	name    string
	entered [][2]string // a file and a function
}

// printRoads measures roads and prints them once the server has ended: to write into a pipe that
// is closed ends the process.
func printRoads(w io.Writer, root, server string) error {
	roads, err := roads(root, server)
	if err != nil {
		return err
	}
	return report(w, roads)
}

// roads runs the probe, with every function traced, on a Redis server.
func roads(root, server string) (_ []road, err error) {
	scratch, err := os.MkdirTemp("", "road-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	program := filepath.Join(scratch, "probe")
	if err := build(root, scratch, program); err != nil {
		return nil, err
	}
	socket := filepath.Join(scratch, "redis.sock")
	redis := exec.Command(server, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", scratch)
	if err := redis.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = redis.Process.Kill()
		_ = redis.Wait()
	}()
	if err := awaitFile(socket); err != nil {
		return nil, err
	}
	command := exec.Command(program, socket)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, err
	}
	return parseRoads(out), nil
}

// awaitFile waits until the server has made its socket.
func awaitFile(path string) error {
	again, limit := time.NewTicker(10*time.Millisecond), time.After(time.Minute)
	defer again.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-limit:
			return fmt.Errorf("the server has made no socket: %s", path)
		}
	}
}

// build compiles the probe into a copy of the repository's code whose functions are traced.
func build(root, scratch, program string) error {
	replaced := map[string]string{}
	replace := func(path string, text []byte) error {
		copied := filepath.Join(scratch, fmt.Sprintf("%d.go", len(replaced)))
		replaced[filepath.Join(root, filepath.FromSlash(path))] = copied
		return os.WriteFile(copied, text, 0o600)
	}
	if err := errors.Join(replace("internal/tracer/tracer.go", tracer), replace("internal/probe/probe.go", probe)); err != nil {
		return err
	}
	folders, err := folders(root)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if !slices.Contains(passed, strings.Split(folder, "/")[0]) || hasModule(root, folder) {
			continue
		}
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*.go"))
		if err != nil {
			return err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			path := folder + "/" + filepath.Base(file)
			text, err = traced(path, text)
			if err != nil {
				return err
			}
			if err := replace(path, text); err != nil {
				return err
			}
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	overlayFile := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return err
	}
	command := exec.Command("go", "build", "-overlay", overlayFile, "-o", program, "./internal/probe")
	command.Dir = root
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	return command.Run()
}

// hasModule reports whether a folder is in a module of its own.
func hasModule(root, folder string) bool {
	for ; folder != "."; folder = filepath.ToSlash(filepath.Dir(folder)) {
		if _, err := os.Stat(filepath.Join(root, folder, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// traced returns the text of a file, in which each function begins with a call of the tracer.
// Lines keep their numbers.
func traced(path string, text []byte) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	from := 0
	insert := func(at token.Pos, what string) {
		end := set.Position(at).Offset
		out.Write(text[from:end])
		out.WriteString(what)
		from = end
	}
	calls := 0
	insert(file.Name.End(), `; import tracer__ "github.com/leasewheel/leasewheel/internal/tracer"`)
	for _, declared := range file.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		calls++
		insert(f.Body.Lbrace+1, fmt.Sprintf(" tracer__.Enter(%q, %q);", path, f.Name.Name))
	}
	out.Write(text[from:])
	if calls == 0 {
		return text, nil
	}
	return out.Bytes(), nil
}

func parseRoads(out []byte) (roads []road) {
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		switch {
		case fields[0] == "road" && len(fields) == 2:
			roads = append(roads, road{name: fields[1]})
		case fields[0] == "enter" && len(fields) == 3 && len(roads) > 0:
			last := &roads[len(roads)-1]
			last.entered = append(last.entered, [2]string{fields[1], fields[2]})
		}
	}
	return roads
}

// measure counts the files and the functions of a road below a folder, and how often it
// returns to a file that it has left.
func (r road) measure(folder string) (files, functions, returns int) {
	var last string
	seen, entered := map[string]bool{}, map[[2]string]bool{}
	for _, e := range r.entered {
		file := e[0]
		if !strings.HasPrefix(file, folder) {
			continue
		}
		entered[e] = true
		if file != last && seen[file] {
			returns++
		}
		seen[file], last = true, file
	}
	return len(seen), len(entered), returns
}

// report prints a row for each road and each module of the code, and then the roads.
func report(w io.Writer, roads []road) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "road\tin\tfiles\tfunctions\treturns\t")
	for _, r := range roads {
		for _, folder := range append([]string{""}, passed...) {
			files, functions, returns := r.measure(folder)
			fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t\n", r.name, cmp.Or(folder, "all"), files, functions, returns)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range roads {
		fmt.Fprintf(w, "\n%s\n", r.name)
		for i, e := range r.entered {
			if i == 0 || r.entered[i-1][0] != e[0] {
				fmt.Fprintf(w, "  %s\n", e[0])
			}
			fmt.Fprintf(w, "    %s\n", e[1])
		}
	}
	return nil
}
