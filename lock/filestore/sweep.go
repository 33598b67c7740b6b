//go:build linux

package filestore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

const (
	// sweepEvery is how often the stores of a folder remove what has ended, together.
	sweepEvery = time.Minute
	// closeSweep bounds the sweep of a store that is closed, as of a process that lives for less.
	closeSweep = 50 * time.Millisecond
	// sweepWait bounds the wait of a sweep for a file that is in use.
	sweepWait = 5 * time.Millisecond
)

// planSweep has a sweep follow a request.
func (s *Store) planSweep() {
	s.plan(&s.sweeps, sweepEvery, func() {
		if s.sweep(sweepEvery / 2) {
			s.planSweep()
		}
	})
}

// sweep removes what has ended, for so long, unless another store does it in this minute. It
// reports whether something is left that will end.
func (s *Store) sweep(within time.Duration) (left bool) {
	done, err := s.use()
	if err != nil {
		return false
	}
	defer done()
	s.peers.restore()
	end := s.now().Add(within)
	if !s.claimSweep() {
		return true
	}
	var gone []string
	stores, _ := s.list(pathOfStores)
	for _, id := range stores {
		if strings.HasPrefix(pathOfStores+id, pathOfNew) || s.peers.look(id) == dead {
			gone = append(gone, id)
		}
	}
	complete := true
	folders := []string{pathOfLocks, pathOfClients}
	rand.Shuffle(len(folders), func(i, j int) { folders[i], folders[j] = folders[j], folders[i] })
	for _, folder := range folders {
		for path, err := range s.files(folder) {
			l, ok := true, false
			switch {
			case s.ending.Err() != nil || s.now().After(end):
				return true
			case err != nil:
			case folder == pathOfLocks:
				l, ok = s.tidyFile(path)
			default:
				l, ok = s.forget(path), true
			}
			left, complete = left || l, complete && ok
		}
	}
	for _, id := range gone { // nothing belongs to them any more
		path := pathOfStores + id
		if complete && (!strings.HasPrefix(path, pathOfNew) || s.old(path)) {
			unix.Unlinkat(s.fd, path, 0) //nolint:errcheck // the next sweep does it
		}
	}
	return left
}

// claimSweep reports whether a sweep is due, which is this store's then.
func (s *Store) claimSweep() bool {
	f, err := s.openSoon(pathOfClock, true)
	if err != nil {
		return false
	}
	defer f.close()
	var c clock
	now := s.now().UnixMicro()
	if !machine.Decode(f.content, c.code) || c.base != s.base || now < c.sweep {
		return false
	}
	c.sweep = now + sweepEvery.Microseconds()
	return f.write(machine.Encode(c.code)) == nil
}

// openSoon opens a file for a sweep.
func (s *Store) openSoon(path string, create bool) (*file, error) {
	ctx, cancel := context.WithTimeout(s.ending, sweepWait)
	defer cancel()
	return s.open(ctx, path, create)
}

// tidyFile frees what dead processes hold, and removes the file if nothing is left. It reports
// whether something is left that ends, and whether it could use the file.
func (s *Store) tidyFile(path string) (left, ok bool) {
	f, err := s.openSoon(path, false)
	if err != nil {
		return true, errors.Is(err, unix.ENOENT)
	}
	ctx, cancel := context.WithTimeout(s.ending, sweepWait)
	defer cancel()
	w, err := s.load(ctx, f)
	if err != nil {
		f.close()
		return true, false
	}
	w.change(tidy)
	ends, end := w.state.Ends()
	if end && ends.Before(s.now()) && len(w.waits) == 0 {
		f.remove()
	} else {
		left, err = end, w.save()
	}
	f.close()
	if err == nil {
		s.deliver(w.out)
	}
	return left, err == nil
}

// forget removes the record of a client if it has ended. It reports whether it has not.
func (s *Store) forget(path string) (left bool) {
	f, err := s.openSoon(path, false)
	if err != nil {
		return false
	}
	defer f.close()
	var a announced
	if left = machine.Decode(f.content, a.code) && s.now().UnixMicro() < a.ends; !left {
		f.remove()
	}
	return left
}

// old reports whether a file was made long ago.
func (s *Store) old(path string) bool {
	var stat unix.Stat_t
	err := unix.Fstatat(s.fd, path, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && s.system.wall().Sub(time.Unix(stat.Mtim.Unix())) > time.Hour
}

// list returns the names in a folder; none if it does not exist.
func (d *folder) list(path string) ([]string, error) {
	fd, err := unix.Openat(d.fd, path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return f.Readdirnames(-1)
}

// used reports whether the process of a store lives, other than id. What else is in the folder does not count.
func (d *folder) used(id string) (bool, error) {
	stores, err := d.list(pathOfStores)
	return slices.ContainsFunc(stores, func(of string) bool {
		var stat unix.Stat_t
		err := unix.Fstatat(d.fd, pathOfStores+of, &stat, unix.AT_SYMLINK_NOFOLLOW)
		return err == nil && stat.Mode&unix.S_IFMT == unix.S_IFIFO && of != id && (&fifos{dir: d.fd}).look(of) == present
	}), err
}

// files yields the paths of the files of a folder with fileOf, in any order: brief sweeps of a large
// folder would otherwise reach the same files each time. An error means that some are missing. What else
// is in the folder is passed over.
func (s *Store) files(folder string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		shards, err := s.list(folder)
		if err != nil && !yield("", err) {
			return
		}
		rand.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
		for _, shard := range shards {
			names, err := s.list(folder + shard)
			if err != nil && !errors.Is(err, unix.ENOTDIR) && !yield("", err) {
				return
			}
			for _, name := range names {
				if len(shard)+len(name) == 2*sha256.Size && !yield(folder+shard+"/"+name, nil) {
					return
				}
			}
		}
	}
}

// contents calls decode with the content of a file, which it does not lock: a writer leaves the
// version before its own alone. It reads again what two writers have changed meanwhile. The error
// is that of a file that exists and cannot be opened.
func (s *Store) contents(path string, decode func([]byte)) error {
	fd, err := openAt(s.fd, path, false)
	if errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f := file{in: s.folder, fd: fd, path: path}
	defer unix.Close(fd)
	for range 100 {
		if _, err := f.read(); err == nil && len(f.content) > 0 {
			decode(f.content)
			break
		}
	}
	return nil
}

// names returns the names with a prefix. An error means that some are missing.
func (s *Store) names(ctx context.Context, prefix string) (names []string, err error) {
	done, err := s.use()
	if err != nil {
		return nil, err
	}
	defer done()
	for path, missing := range s.files(pathOfLocks) {
		var r record
		if missing = cmp.Or(missing, ctx.Err()); missing == nil {
			missing = s.contents(path, func(b []byte) { r.read(b, s.base) })
		}
		if missing != nil {
			err = fmt.Errorf("filestore: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotDone, missing)
		}
		if r.name != "" && strings.HasPrefix(r.name, prefix) {
			names = append(names, r.name)
		}
	}
	slices.Sort(names)
	return names, err
}

// Announce stores the record of a client, see [driver.Store].
func (s *Store) Announce(ctx context.Context, c driver.Client, ttl time.Duration) error {
	s.arrive()
	done, err := s.use()
	if err != nil {
		return err
	}
	defer done()
	f, err := s.file(ctx, fileOf(pathOfClients, c.ID))
	if err != nil {
		return err
	}
	defer f.close()
	a := announced{c, s.now().Add(ttl).UnixMicro()}
	return s.write(f, machine.Encode(a.code))
}

// client returns the record of a client.
func (s *Store) client(id string) (c driver.Client, current bool) {
	var a announced
	_ = s.contents(fileOf(pathOfClients, id), func(b []byte) { // without it the id is shown
		current = machine.Decode(b, a.code) && a.ends >= s.now().UnixMicro()
	})
	return a.Client, current
}
