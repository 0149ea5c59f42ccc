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
	// A look-up by the system's resolver outlives the dial that wanted it where no
	// server answers; it ends by itself.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net.(*Resolver).lookupIPAddr.func1"), goleak.IgnoreAnyFunction("net.(*Resolver).lookupIPAddr.func2"),
		goleak.IgnoreAnyFunction("net.(*Resolver).goLookupIPCNAMEOrder.func3"), goleak.IgnoreAnyFunction("net.(*Resolver).tryOneName"))
}
