package pgtest

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }
