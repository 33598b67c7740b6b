package delayqueue_test

import (
	"testing"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }
