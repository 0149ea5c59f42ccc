//go:build unix

package agent

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
	"github.com/etcdinit/etcdinit/discovery"
)

func peersAt(addrs ...string) []discovery.Peer {
	var list []discovery.Peer
	for i, a := range addrs {
		list = append(list, discovery.Peer{Name: "m" + strconv.Itoa(i), Host: "M" + strconv.Itoa(i) + ".example.org", Addrs: []netip.Addr{netip.MustParseAddr(a)}})
	}
	return list
}

// until waits for a condition that another goroutine makes true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(labTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal(what)
}

// TestLookout: the records are asked when it is due, what is found is dialled at
// once, and a round that dials the old addresses ends.
func TestLookout(t *testing.T) {
	var looks atomic.Int32
	answer := make(chan Found)
	l := newLookout(t.Context(), zap.NewNop(), func(ctx context.Context) (Found, error) {
		looks.Add(1)
		select {
		case f := <-answer:
			if len(f.Peers) == 0 {
				return f, errors.New("no DNS")
			}
			return f, nil
		case <-ctx.Done():
			return Found{}, ctx.Err()
		}
	})
	l.book.update(peersAt("192.0.2.1", "192.0.2.2"))
	l.due(lookAgain)
	if looks.Load() != 0 {
		t.Error("asked again at once")
	}
	long := func() { l.mu.Lock(); l.asked = l.asked.Add(-lookAgain); l.mu.Unlock() }
	long()
	l.due(lookAgain)
	until(t, "not asked", func() bool { return looks.Load() == 1 })
	l.due(0) // while it is asked

	round, cancel := l.bounded(t.Context())
	defer cancel()
	answer <- Found{Peers: peersAt("192.0.2.1", "192.0.2.2")}
	until(t, "no answer", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.latest != nil })
	if round.Err() != nil {
		t.Error("the same addresses end a round")
	}
	if f := l.fetch(); f == nil || len(f.Peers) != 2 {
		t.Errorf("found %v", f)
	}
	if l.fetch() != nil {
		t.Error("an answer is fetched twice")
	}
	until(t, "what was due meanwhile is forgotten", func() bool { return looks.Load() == 2 })
	answer <- Found{Peers: peersAt("192.0.2.1", "192.0.2.9")}
	select {
	case <-round.Done():
	case <-time.After(labTime):
		t.Fatal("a round goes on at addresses that are old")
	}
	if got := l.book.of("m1.example.org."); len(got) != 1 || got[0].String() != "192.0.2.9" {
		t.Errorf("dialled at %v", got)
	}
	// After failures it asks less often.
	for failed := range 3 {
		l.mu.Lock()
		l.asked = time.Time{}
		l.mu.Unlock()
		l.due(lookAgain)
		until(t, "not asked", func() bool { return looks.Load() == int32(3+failed) })
		answer <- Found{}
	}
	until(t, "failures do not count", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.failures == 3 })
	long()
	l.due(lookAgain)
	time.Sleep(10 * time.Millisecond)
	if looks.Load() != 5 {
		t.Error("a dead DNS is asked as often as a living one")
	}
	l.stop()
	l.stop() // it has ended
}

// TestAskRecords: a peer that is not as it should be is a reason to look the
// records up.
func TestAskRecords(t *testing.T) {
	for _, tt := range []struct {
		name string
		peer rendezvous.PeerView
		self rendezvous.Standing
		ago  time.Duration // since the records were asked
		want bool
	}{
		{"all as it should be", rendezvous.PeerView{Now: rendezvous.IsPrepared, Agreed: true}, rendezvous.Mine, time.Hour, false},
		{"there, and it does not agree yet", rendezvous.PeerView{Now: rendezvous.IsWaiting}, rendezvous.Mine, lookAgain, true},
		{"silent", rendezvous.PeerView{Now: rendezvous.Silent}, rendezvous.Mine, lookAgain, true},
		{"silent, just asked", rendezvous.PeerView{Now: rendezvous.Silent}, rendezvous.Mine, lookAgain / 2, false},
		{"silent, and it has called", rendezvous.PeerView{Now: rendezvous.Silent, Called: true}, rendezvous.Mine, lookAtOnce, true},
		{"silent, and bound", rendezvous.PeerView{Now: rendezvous.Silent, Bound: true}, rendezvous.Mine, time.Hour, false},
		{"silent, and left out", rendezvous.PeerView{Now: rendezvous.Silent, LeftOut: true}, rendezvous.Mine, time.Hour, false},
		{"another plan", rendezvous.PeerView{Now: rendezvous.Differs}, rendezvous.Mine, lookAgain, true},
		{"an etcd", rendezvous.PeerView{Now: rendezvous.Vague}, rendezvous.Mine, lookAgain, true},
		{"its own URL leads elsewhere", rendezvous.PeerView{Now: rendezvous.IsPrepared, Agreed: true}, rendezvous.Silent, lookAgain, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := wordsAgent(t, "a", "a", "b")
			a.lookout = &lookout{ask: make(chan struct{}, 1), asked: time.Now().Add(-tt.ago)}
			a.view = rendezvous.View{Self: tt.self, Peers: []rendezvous.PeerView{tt.peer}}
			a.askRecords()
			if got := len(a.lookout.ask) == 1; got != tt.want {
				t.Errorf("asked: %t, want %t", got, tt.want)
			}
		})
	}
}

func TestBook(t *testing.T) {
	var b book
	if got := b.of("m0.example.org"); got != nil {
		t.Errorf("an empty book has %v", got)
	}
	if b.update(peersAt("192.0.2.1", "192.0.2.2")) {
		t.Error("the first addresses have moved")
	}
	if b.update(peersAt("192.0.2.1")) {
		t.Error("one that is not listed has moved")
	}
	if !b.update(peersAt("192.0.2.3")) {
		t.Error("another address has not moved")
	}
	// Two members of one host have its addresses.
	two := peersAt("192.0.2.1", "192.0.2.2")
	two[1].Host = two[0].Host
	b.update(two)
	if got := b.of("m0.EXAMPLE.org."); len(got) != 2 {
		t.Errorf("the addresses of a host with two members: %v", got)
	}
	if _, err := b.dial(t.Context(), "tcp", "no port"); err == nil {
		t.Error("an address without a port passes")
	}
}

// blackhole is an address that takes no connection and refuses none: its queue is
// full.
func blackhole(t *testing.T, ip netip.Addr, port int) (at int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) }) //nolint:errcheck // the test is over
	if err = unix.Bind(fd, &unix.SockaddrInet4{Addr: ip.As4(), Port: port}); err != nil {
		t.Fatal(err)
	}
	if err = unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if in, ok := name.(*unix.SockaddrInet4); ok {
		at = in.Port
	}
	for range 8 { // the queue of 0 takes one or two
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp4", net.JoinHostPort(ip.String(), strconv.Itoa(at)))
		cancel()
		if err != nil {
			return at
		}
		t.Cleanup(func() { _ = c.Close() }) //nolint:errcheck // the test is over
	}
	t.Skip("the queue of a listener does not fill here")
	return 0
}

func listener(t *testing.T, addr string) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Skipf("%s: %v", addr, err)
	}
	t.Cleanup(func() { _ = l.Close() }) //nolint:errcheck // the test is over
	return l
}

// TestDeadAddresses: an address that swallows packets costs no other one its time.
func TestDeadAddresses(t *testing.T) {
	t.Parallel()
	dead := netip.MustParseAddr("127.9.9.1")
	port := blackhole(t, dead, 0)
	at := func(ip string) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
	for _, tt := range []struct {
		name  string
		alive string
	}{
		{"the other family", "::1"},
		{"the same family", "127.9.9.2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			listener(t, at(tt.alive))
			var b book
			b.update([]discovery.Peer{{Host: "m1.example.org", Addrs: []netip.Addr{dead, netip.MustParseAddr(tt.alive)}}})
			ctx, cancel := context.WithTimeout(t.Context(), rendezvous.RoundTime)
			defer cancel()
			began := time.Now()
			c, err := b.dial(ctx, "tcp", "m1.example.org:"+strconv.Itoa(port))
			if err != nil {
				t.Fatalf("after %v: %v", time.Since(began), err)
			}
			if got := c.RemoteAddr().String(); got != at(tt.alive) {
				t.Errorf("connected to %s", got)
			}
			if took := time.Since(began); took > rendezvous.RoundTime*3/4 {
				t.Errorf("it took %v of %v", took, rendezvous.RoundTime)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("all refuse", func(t *testing.T) {
		l := listener(t, "127.9.9.3:0")
		free := netip.MustParseAddrPort(l.Addr().String()).Port()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		var b book
		b.update([]discovery.Peer{{Host: "m1.example.org", Addrs: []netip.Addr{netip.MustParseAddr("127.9.9.3"), netip.MustParseAddr("::1")}}})
		if _, err := b.dial(t.Context(), "tcp", "m1.example.org:"+strconv.Itoa(int(free))); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("both answer", func(t *testing.T) {
		l := listener(t, "127.9.9.4:0")
		p := strconv.Itoa(int(netip.MustParseAddrPort(l.Addr().String()).Port()))
		six := listener(t, net.JoinHostPort("::1", p))
		c, err := race(t.Context(), "tcp", [2][]string{{l.Addr().String()}, {six.Addr().String()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil { // the other one is closed by itself: goleak sees it
			t.Error(err)
		}
	})
}
