package sim_test

import (
	"testing"

	"github.com/windows-nodes/wmco/lab/leak"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }
