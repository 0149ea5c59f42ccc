package app

import (
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

// grace is how much longer than until its next try a wait asks systemd for: a
// try that meets silent servers takes its time.
const grace = 2 * time.Minute

// notifyWait tells systemd, where it started this process and listens, what is
// waited for and that the start takes longer. Nobody else notices: waiting goes
// on whether the message arrives or not.
func notifyWait(w agent.Wait) (told bool) {
	return notify(
		"EXTEND_TIMEOUT_USEC="+strconv.FormatInt((w.Next+grace).Microseconds(), 10),
		"STATUS=etcdinit: waiting: "+strings.ReplaceAll(w.For, "\n", "; "),
	)
}

// notifyEnd takes the status back: what starts next shall not stand there as
// still waiting.
func notifyEnd() { notify("STATUS=") }

func notify(states ...string) bool {
	told, err := daemon.SdNotify(false, strings.Join(states, "\n"))
	return told && err == nil
}
