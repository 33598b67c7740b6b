package run

import (
	"bytes"
	"os"
	"slices"
	"strconv"
)

// A descendant is known by its id and by when it began: another one may get its id later.
type descendant struct {
	pid   int
	began string
}

// descendants returns the live descendants of root, without others and theirs. It finds none if /proc
// is not mounted.
func descendants(root int, others []descendant) []descendant {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := make(map[int][]descendant)
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, parent, alive := find(pid); alive && !slices.Contains(others, p) {
			children[parent] = append(children[parent], p)
		}
	}
	found := children[root]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

// find returns a process, its parent, and whether it lives. A dead one that is not yet reaped does not.
func find(pid int) (p descendant, parent int, alive bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, 0, false
	}
	// "pid (name) state parent …"; the name may contain any character.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const began = 19
	if len(fields) <= began || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return p, 0, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return descendant{pid, string(fields[began])}, parent, err == nil
}
