package app

import (
	"bytes"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
)

// What is waited for stands in systemd's status while it is waited for, and no
// longer than that; every try asks for more time, also one with nothing new.
func TestProgressNotifiesSystemd(t *testing.T) {
	addr := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	socket, err := net.ListenUnixgram("unixgram", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = socket.Close() }() //nolint:errcheck // nothing is written through it
	received := func() string {
		t.Helper()
		if late := socket.SetReadDeadline(time.Now().Add(5 * time.Second)); late != nil {
			t.Fatal(late)
		}
		message := make([]byte, 4096)
		n, unread := socket.Read(message)
		if unread != nil {
			t.Fatalf("no message: %v", unread)
		}
		return string(message[:n])
	}
	t.Setenv("NOTIFY_SOCKET", addr.Name)
	var out bytes.Buffer
	p := &progress{out: &out}
	log, err := newLogger("info", "json", p)
	if err != nil {
		t.Fatal(err)
	}
	p.log = log
	wait := agent.Wait{For: "2 of 3 members", Cause: "silent", Next: 3 * time.Second}
	const want = "EXTEND_TIMEOUT_USEC=123000000\nSTATUS=etcdinit: waiting: 2 of 3 members"
	p.wait(wait)
	if got := received(); got != want {
		t.Errorf("first try: %q, want %q", got, want)
	}
	p.wait(wait)
	if got := received(); got != want {
		t.Errorf("second try: %q, want %q", got, want)
	}
	if n := bytes.Count(out.Bytes(), []byte("waiting")); n != 1 {
		t.Errorf("%d log lines for one thing that is waited for, want 1:\n%s", n, &out)
	}
	p.log.Info("seeded", zap.String("name", "a"))
	if got := received(); got != "STATUS=" {
		t.Errorf("after the wait: %q, want an empty status", got)
	}
	p.clear()
	if err := socket.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := socket.Read(make([]byte, 64)); err == nil {
		t.Errorf("a message of %d bytes that nothing asked for", n)
	}
}

// Without systemd nothing is told and nothing fails.
func TestProgressWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if notifyWait(agent.Wait{For: "x"}) {
		t.Error("told somebody, and nobody is there")
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
	if notifyWait(agent.Wait{For: "x"}) {
		t.Error("told a socket that does not exist")
	}
}
