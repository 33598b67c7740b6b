package wheel_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Every test named in the page that maps the tests and defects of other timers exists.
func TestEquivalentsExist(t *testing.T) {
	functions := map[string]bool{}
	for _, pattern := range []string{"*_test.go", "../bucket/*_test.go", "../timeout/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, error %v", pattern, len(files), err)
		}
		for _, file := range files {
			for _, match := range regexp.MustCompile(`(?m)^func (\w+)\(`).FindAllSubmatch(read(t, file), -1) {
				functions[string(match[1])] = true
			}
		}
	}
	names := regexp.MustCompile(`\b(Test|Fuzz|Example)[A-Z]\w*`).FindAll(read(t, "../docs/wheel-tests.md"), -1)
	named := 0
	for _, name := range names {
		switch name := string(name); {
		case functions[name]:
			named++
		case name == "HashedWheelTimerTest", name == "DeadlineTimerWheelTest": // theirs
		default:
			t.Errorf("docs/wheel-tests.md names %s, which does not exist", name)
		}
	}
	if named < 90 {
		t.Errorf("docs/wheel-tests.md names %d tests: it was not understood", named)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
