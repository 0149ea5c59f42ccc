package agent

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Most tests wait, few compute: more of them at once than there are CPUs.
	if err := flag.Set("test.parallel", "8"); err != nil {
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
