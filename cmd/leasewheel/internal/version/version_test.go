//go:build unix

package version

import (
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A release has the version of its tag; a build from a work tree has the revision, and
// whether the tree differed from it.
func TestBuildOf(t *testing.T) {
	t.Parallel()
	platform := " " + runtime.GOOS + "/" + runtime.GOARCH
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "0338076"}, {Key: "vcs.time", Value: "2026-11-23T03:00:00Z"}}
	for want, info := range map[string]*debug.BuildInfo{
		"leasewheel (devel) go1.26.8" + platform:                      {GoVersion: "go1.26.8"},
		"leasewheel v0.2.0 go1.26.8" + platform:                       {GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.2.0"}},
		"leasewheel v0.2.0 go1.26.8" + platform + " revision 0338076": {GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.2.0"}, Settings: vcs},
		"leasewheel v0.2.0+dirty go1.26.8" + platform + " revision 0338076 modified": {
			GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.2.0+dirty"},
			Settings: append(slices.Clone(vcs), debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
		},
	} {
		assert.Equal(t, want, buildOf(info).String())
	}
}
