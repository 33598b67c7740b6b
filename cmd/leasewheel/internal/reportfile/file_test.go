package reportfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writing writes text and then fails, if err is not nil.
func writing(text string, err error) func(io.Writer) error {
	return func(w io.Writer) error {
		_, failed := io.WriteString(w, text)
		return errors.Join(failed, err)
	}
}

// A report replaces an earlier one as a whole, keeps its mode, and leaves nothing else.
func TestReportFileIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "report")
	require.NoError(t, Check(path))
	assert.NoFileExists(t, path, "a check writes nothing")
	require.NoError(t, Write(path, writing("a long first report", nil)))
	require.NoError(t, os.Chmod(path, 0o660))
	before, err := os.Open(path)
	require.NoError(t, err)
	defer before.Close()

	broken := errors.New("broken")
	require.ErrorIs(t, Write(path, writing("half", broken)), broken)
	requireFile(t, path, "a long first report")
	require.NoError(t, Check(path))
	requireFile(t, path, "a long first report")

	require.NoError(t, Write(path, writing("second", nil)))
	requireFile(t, path, "second")
	read, err := io.ReadAll(before)
	require.NoError(t, err)
	assert.Equal(t, "a long first report", string(read), "a reader of the earlier report has all of it")
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.EqualValues(t, 0o660, info.Mode().Perm(), "whatever the umask is")

	link := filepath.Join(folder, "link")
	require.NoError(t, os.Symlink("report", link))
	require.NoError(t, Write(link, writing("third", nil)))
	requireFile(t, path, "third")
	target, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, "report", target)

	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	assert.Len(t, entries, 2)
}

func requireFile(t *testing.T, path, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(text))
}

// A device is written to, and never replaced.
func TestReportFileToADevice(t *testing.T) {
	t.Parallel()
	require.NoError(t, Check(os.DevNull))
	require.NoError(t, Write(os.DevNull, writing("report", nil)))
	info, err := os.Stat(os.DevNull)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeDevice)
}

// A report does not take the place of the file that standard output is, whatever leads there.
func TestReportFileIsNotStandardOutput(t *testing.T) {
	terminal := os.Stdout
	t.Cleanup(func() { os.Stdout = terminal })
	path := filepath.Join(t.TempDir(), "output")
	var err error
	os.Stdout, err = os.Create(path)
	require.NoError(t, err)
	defer os.Stdout.Close()
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	for _, path := range []string{path, link} {
		require.ErrorContains(t, Check(path), path+": standard output has another")
	}
	require.NoError(t, Check(link+"-of-another"))
}

func TestReportFileErrors(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "none", "report")
	for _, err := range []error{Check(missing), Write(missing, writing("x", nil))} {
		assert.ErrorIs(t, err, os.ErrNotExist)
		assert.ErrorContains(t, err, "open "+missing+":")
	}
	require.Error(t, Check(t.TempDir()))
	require.Error(t, Write(t.TempDir(), writing("x", nil)))
	require.NoError(t, Check(""))
	require.NoError(t, Write("", nil))
}
