package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	if len(os.Args) < 2 || os.Args[1] == "road" && len(os.Args) != 4 || os.Args[1] == "tests" && len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: house root [package ...], house road root redis-server, or house tests root")
		os.Exit(2)
	}
	var err error
	switch os.Args[1] {
	case "road":
		err = printRoads(os.Stdout, os.Args[2], os.Args[3])
	case "tests":
		err = printTests(os.Stdout, os.Args[2])
	default:
		err = run(os.Stdout, os.Args[1], os.Args[2:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

// run prints the figures of all packages below root, or the details of the named ones.
func run(w io.Writer, root string, details []string) error {
	folders, err := folders(root)
	if err != nil {
		return err
	}
	var packages []*pkg
	for _, folder := range folders {
		p, err := load(root, folder)
		if err != nil {
			return err
		}
		if p != nil {
			packages = append(packages, p)
		}
	}
	if len(details) > 0 {
		for _, p := range packages {
			if slices.Contains(details, p.folder) {
				p.describe(w)
			}
		}
		return nil
	}
	if err := table(w, packages); err != nil {
		return err
	}
	words, err := words(root)
	if err != nil {
		return err
	}
	return documents(w, words)
}

// folders returns the folders below root that may have packages.
func folders(root string) (folders []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		name := entry.Name()
		if path != root && (strings.HasPrefix(name, ".") || name == "testdata") {
			return filepath.SkipDir
		}
		folder, err := filepath.Rel(root, path)
		folders = append(folders, filepath.ToSlash(folder))
		return err
	})
	return folders, err
}

// table prints a row for each package.
func table(w io.Writer, packages []*pkg) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "package\tfiles\tlines\tscripts\tscript lines\texported\treferences\tclimb\t%\tmost methods\tof\tin files\t")
	for _, p := range packages {
		climbing := len(p.climbing())
		most := p.largest()
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t%d\t%s\t%d\t\n", p.folder, len(p.files), p.lines, p.scripts, p.scriptLines,
			len(p.exported), len(p.references), climbing, percent(climbing, len(p.references)), most.methods, most.name, len(most.files))
	}
	return t.Flush()
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}

// words counts the words of each Markdown document.
func words(root string) (map[string]int, error) {
	count := make(map[string]int)
	paths, err := filepath.Glob(filepath.Join(root, "*.md"))
	if err != nil {
		return nil, err
	}
	inner, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(paths, inner...) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		count[filepath.ToSlash(name)] = len(strings.Fields(string(text)))
	}
	return count, nil
}

// documents prints the words of each document, and their sum.
func documents(w io.Writer, words map[string]int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\ndocument\twords\t")
	sum := 0
	for _, name := range slices.Sorted(keys(words)) {
		sum += words[name]
		fmt.Fprintf(t, "%s\t%d\t\n", name, words[name])
	}
	fmt.Fprintf(t, "all\t%d\t\n", sum)
	return t.Flush()
}
