package discovery_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/etcdinit/etcdinit/discovery"
)

// fake answers in turn, the last answer repeats.
type fake struct {
	answers []answer
	asked   []time.Time
	sized   bool
}

type answer struct {
	peers []discovery.Peer
	err   error
}

func (f *fake) Discover(context.Context) ([]discovery.Peer, error) {
	a := f.answers[min(len(f.asked), len(f.answers)-1)]
	f.asked = append(f.asked, time.Now())
	return a.peers, a.err
}

func (f *fake) Sized() bool { return f.sized }

// zone3 is the first n of three peers as a source gives them.
func zone3(n int) []discovery.Peer {
	var peers []discovery.Peer
	for i := range n {
		peers = append(peers, discovery.Peer{
			Host:  fmt.Sprintf("etcd-%d.example.com", i),
			Port:  2380,
			Addrs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("192.0.2.1%d", i))},
		})
	}
	return peers
}

func kind(err error) discovery.Kind {
	var e *discovery.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Kind
}

func contains(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, s := range texts {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %q lacks %q", fmt.Sprint(err), s)
		}
	}
}

// TestAwaitGrows: SB-01, records that appear one by one.
func TestAwaitGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &fake{answers: []answer{{peers: zone3(1)}, {peers: zone3(1)}, {peers: zone3(2)}, {peers: zone3(3)}}}
		var got []string
		peers, err := discovery.Await(t.Context(), p, discovery.AwaitOptions{
			Size: 3,
			OnProgress: func(p discovery.Progress) {
				got = append(got, fmt.Sprintf("%d: %d of %d, %d peers, err %v", p.Attempt, p.Got, p.Want, len(p.Peers), p.Err != nil))
				if p.Left != 0 {
					t.Errorf("left %v without a deadline", p.Left)
				}
				if (p.Next > 0) != (p.Err != nil) {
					t.Errorf("next %v, err %v", p.Next, p.Err)
				}
			},
		})
		if err != nil || len(peers) != 3 {
			t.Fatal(peers, err)
		}
		want := []string{"1: 1 of 3, 1 peers, err true", "2: 1 of 3, 1 peers, err true", "3: 2 of 3, 2 peers, err true", "4: 3 of 3, 3 peers, err false"}
		if !slices.Equal(got, want) {
			t.Errorf("progress %q, want %q", got, want)
		}
	})
}

// TestAwaitDeadline: the last Retry, the tries, the time, the hints.
func TestAwaitDeadline(t *testing.T) {
	notYet := &discovery.Error{Kind: discovery.Retry, Msg: "NXDOMAIN", Hints: []string{"look there"}}
	tests := []struct {
		name   string
		answer answer
		kind   discovery.Kind
		texts  []string
	}{
		{"negative", answer{err: notYet}, discovery.Retry, []string{"after 10s", "NXDOMAIN; hint: look there", "attempt "}},
		{"wrapped", answer{err: fmt.Errorf("source b: %w", notYet)}, discovery.Retry, []string{"after 10s: source b: NXDOMAIN"}},
		{"too few", answer{peers: zone3(1)}, discovery.Retry, []string{"got 1 of 3", "etcd-0.example.com", "Parallel"}},
		{"no pod", answer{peers: zone3(1)}, discovery.Retry, []string{"got 1 of 3"}},
		{"seen by the source", answer{err: &discovery.Error{Kind: discovery.Retry, Msg: "short", Seen: zone3(2)}}, discovery.Retry, []string{"Parallel"}},
		{"none", answer{}, discovery.Retry, []string{"got 0 of 3"}},
		{"a bare error", answer{err: errors.New("boom")}, discovery.Retry, []string{"boom"}},
		{"turns", answer{err: &discovery.Error{Kind: discovery.Retry, AtDeadline: discovery.Unusable, Msg: "loop"}}, discovery.Unusable, []string{"loop", "after 10s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				p := &fake{answers: []answer{tt.answer}}
				start := time.Now()
				peers, err := discovery.Await(ctx, p, discovery.AwaitOptions{
					Size: 3,
					Env:  discovery.Env{Pod: tt.name != "no pod"},
					OnProgress: func(p discovery.Progress) {
						if strings.Contains(p.Err.Error(), "hint") {
							t.Errorf("a hint before the deadline: %v", p.Err)
						}
						if p.Left <= 0 || p.Left > 10*time.Second {
							t.Errorf("left %v", p.Left)
						}
					},
				})
				if peers != nil || kind(err) != tt.kind {
					t.Fatalf("got %v, %v, want kind %v", peers, err, tt.kind)
				}
				contains(t, err, tt.texts...)
				if tt.name == "no pod" && strings.Contains(err.Error(), "StatefulSet") {
					t.Errorf("a hint about pods where there is none: %v", err)
				}
				if d := time.Since(start); d != 10*time.Second {
					t.Errorf("returned after %v, want 10s", d)
				}
				if n := len(p.asked); n < 5 || n > 30 {
					t.Errorf("%d tries in 10s", n)
				}
			})
		})
	}
}

// TestAwaitAfter: WB-03, asking sooner than the negative TTL is useless, but
// the deadline still gets its last try.
func TestAwaitAfter(t *testing.T) {
	negative := answer{err: &discovery.Error{Kind: discovery.Retry, Msg: "NXDOMAIN, SOA minimum 30 s", After: 30 * time.Second}}
	tests := []struct {
		name    string
		timeout time.Duration
		second  func(time.Duration) bool // when the second try may be
	}{
		{"no deadline", 0, func(d time.Duration) bool { return d == 30*time.Second }},
		{"long deadline", 5 * time.Minute, func(d time.Duration) bool { return d == 30*time.Second }},
		{"deadline first", 10 * time.Second, func(d time.Duration) bool { return d >= 7*time.Second && d < 10*time.Second }},
		{"short deadline", time.Second, func(d time.Duration) bool { return d < 500*time.Millisecond }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.timeout > 0 {
					var cancel func()
					ctx, cancel = context.WithTimeout(ctx, tt.timeout)
					defer cancel()
				}
				p := &fake{answers: []answer{negative, {peers: zone3(3)}}}
				var first discovery.Progress
				peers, err := discovery.Await(ctx, p, discovery.AwaitOptions{Size: 3, OnProgress: func(p discovery.Progress) {
					if p.Attempt == 1 {
						first = p
					}
				}})
				if err != nil || len(peers) != 3 {
					t.Fatal(peers, err)
				}
				if d := p.asked[1].Sub(p.asked[0]); !tt.second(d) || d != first.Next {
					t.Errorf("second try after %v, announced %v", d, first.Next)
				}
				if s := first.String(); !strings.Contains(s, "NXDOMAIN, SOA minimum 30 s, next try in ") {
					t.Errorf("progress %q", s)
				}
				if strings.Contains(first.String(), "left") != (tt.timeout > 0) {
					t.Errorf("progress %q with timeout %v", first.String(), tt.timeout)
				}
			})
		})
	}
}

// late is a source whose set is whole from a time on.
type late struct{ whole time.Time }

func (l late) Discover(context.Context) ([]discovery.Peer, error) {
	if time.Now().Before(l.whole) {
		return nil, &discovery.Error{Kind: discovery.Retry, Msg: "NXDOMAIN", After: time.Hour}
	}
	return zone3(3), nil
}

// TestAwaitLastLook: what comes right before the deadline is still seen, however
// long the wait was.
func TestAwaitLastLook(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 5 * time.Second, 10 * time.Minute} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), timeout)
				defer cancel()
				start := time.Now()
				peers, err := discovery.Await(ctx, late{start.Add(timeout - 400*time.Millisecond)}, discovery.AwaitOptions{Size: 3})
				if err != nil || len(peers) != 3 {
					t.Errorf("got %v, %v after %v", peers, err, time.Since(start))
				}
			})
		})
	}
}

// TestBeforeDeadline: two looks before the end, whatever the wait was to be.
func TestBeforeDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var looks []time.Duration
		for start := time.Now(); time.Since(start) < 10*time.Second; {
			time.Sleep(discovery.BeforeDeadline(ctx, time.Hour))
			looks = append(looks, time.Since(start))
		}
		if want := []time.Duration{8 * time.Second, 9700 * time.Millisecond, 10 * time.Second}; !slices.Equal(looks, want) {
			t.Errorf("looks after %v, want %v", looks, want)
		}
		if d := discovery.BeforeDeadline(t.Context(), time.Hour); d != time.Hour {
			t.Errorf("without a deadline: %v", d)
		}
	})
}

// TestAwaitHints: a wait that is long is told what to look at, also when no
// deadline will ever say it.
func TestAwaitHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		start := time.Now()
		p := &fake{answers: []answer{{err: &discovery.Error{Kind: discovery.Retry, Msg: "NXDOMAIN", Hints: []string{"publishNotReadyAddresses"}, Seen: zone3(1)}}}}
		_, err := discovery.Await(ctx, p, discovery.AwaitOptions{Size: 3, Env: discovery.Env{Pod: true}, OnProgress: func(p discovery.Progress) {
			waited, text := time.Since(start), p.Err.Error()
			hinted := strings.Contains(text, "publishNotReadyAddresses") && strings.Contains(text, "Parallel")
			if hinted != (waited >= 30*time.Second) {
				t.Errorf("after %v: %s", waited, text)
			}
			if waited > time.Minute {
				cancel()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestAwaitBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := &fake{answers: []answer{{}}}
		start := time.Now()
		if _, err := discovery.Await(ctx, p, discovery.AwaitOptions{Size: 3}); err == nil {
			t.Fatal("no error")
		}
		for i, at := range p.asked[1 : len(p.asked)-1] {
			d := at.Sub(p.asked[i])
			upper := min(max(p.asked[i].Sub(start)/4, 200*time.Millisecond), 5*time.Second)
			if left := ctxEnd(ctx).Sub(at); d < upper/2 && left > 3*time.Second || d > upper {
				t.Errorf("wait %d was %v, want %v to %v", i, d, upper/2, upper)
			}
		}
	})
}

func ctxEnd(ctx context.Context) time.Time {
	end, _ := ctx.Deadline()
	return end
}

// TestAwaitFinal: what waiting cannot fix is returned at once.
func TestAwaitFinal(t *testing.T) {
	https := zone3(3)
	for i := range https {
		https[i].PeerURLs = []string{"https://" + https[i].Host + ":2380"}
	}
	tests := []struct {
		name   string
		answer answer
		kind   discovery.Kind
		texts  []string
	}{
		{"config", answer{err: &discovery.Error{Kind: discovery.Config, Msg: "bad"}}, discovery.Config, []string{"bad"}},
		{"unusable", answer{err: &discovery.Error{Kind: discovery.Unusable, Msg: "bad"}}, discovery.Unusable, nil},
		{"plugin", answer{err: &discovery.Error{Kind: discovery.Plugin, Msg: "bad"}}, discovery.Plugin, nil},
		{"not self", answer{err: &discovery.Error{Kind: discovery.NotSelf, Msg: "bad"}}, discovery.NotSelf, nil},
		{"too many", answer{peers: append(zone3(3), discovery.Peer{Host: "x.example.com", Port: 1, Addrs: zone3(1)[0].Addrs})}, discovery.Unusable, []string{"got 4 of 3", "x.example.com"}},
		{"WB-37 scheme", answer{peers: https}, discovery.Config, []string{"'http'", "https://etcd-0.example.com:2380"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fake{answers: []answer{tt.answer, {peers: zone3(3)}}}
				peers, err := discovery.Await(t.Context(), p, discovery.AwaitOptions{Size: 3, Env: discovery.Env{PeerScheme: "http"}})
				if peers != nil || kind(err) != tt.kind || len(p.asked) != 1 {
					t.Fatalf("got %v, %v after %d tries, want kind %v after one", peers, err, len(p.asked), tt.kind)
				}
				contains(t, err, tt.texts...)
			})
		})
	}
}

func TestAwaitCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent, stop := context.WithCancelCause(t.Context())
		ctx, cancel := context.WithTimeout(parent, time.Hour)
		defer cancel()
		sigterm := fmt.Errorf("signal %v", syscall.SIGTERM)
		time.AfterFunc(7*time.Second, func() { stop(sigterm) })
		start := time.Now()
		_, err := discovery.Await(ctx, &fake{answers: []answer{{}}}, discovery.AwaitOptions{Size: 3})
		if !errors.Is(err, sigterm) || kind(err) != 0 {
			t.Errorf("got %v, want %v", err, sigterm)
		}
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("returned after %v", d)
		}
		p := &fake{answers: []answer{{peers: zone3(3)}}}
		if _, err := discovery.Await(ctx, p, discovery.AwaitOptions{Size: 3}); !errors.Is(err, sigterm) || len(p.asked) != 0 {
			t.Errorf("already cancelled: got %v after %d tries", err, len(p.asked))
		}
	})
}

// slow is a provider whose every answer takes longer than there is time.
type slow struct{ tries int }

func (s *slow) Discover(ctx context.Context) ([]discovery.Peer, error) {
	s.tries++
	if s.tries == 1 {
		return nil, &discovery.Error{Kind: discovery.Retry, Msg: "SERVFAIL from 192.0.2.53:53"}
	}
	<-ctx.Done()
	return nil, &discovery.Error{Kind: discovery.Retry, Msg: "no answer", Err: ctx.Err()}
}

// TestAwaitKeepsReason: the try that the deadline cut off does not hide why
// there was nothing before.
func TestAwaitKeepsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := discovery.Await(ctx, &slow{}, discovery.AwaitOptions{Size: 3})
		contains(t, err, "SERVFAIL from 192.0.2.53:53", "attempt 2 after 1m0s")
		_, err = discovery.Await(ctx, &slow{}, discovery.AwaitOptions{Size: 3})
		if kind(err) != discovery.Retry {
			t.Errorf("no time at all: got %v", err)
		}
	})
}

// TestAwaitFlapping: WB-04, a set is complete within one pass or not at all.
func TestAwaitFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nx := answer{err: &discovery.Error{Kind: discovery.Retry, Msg: "NXDOMAIN"}}
		others := zone3(3)[2:]
		p := &fake{answers: []answer{{peers: zone3(2)}, nx, {peers: others}, nx, {peers: zone3(2)}, {peers: zone3(3)}}}
		peers, err := discovery.Await(t.Context(), p, discovery.AwaitOptions{Size: 3})
		if err != nil || len(peers) != 3 || len(p.asked) != 6 {
			t.Errorf("got %v, %v after %d tries, want the set at the sixth", peers, err, len(p.asked))
		}
	})
}

func TestAwaitSize(t *testing.T) {
	tests := []struct {
		name      string
		size, env int
		sized     bool
		kind      discovery.Kind
	}{
		{"none, and the source cannot know", 0, 0, false, discovery.Config},
		{"none, and the source knows", 0, 0, true, 0},
		{"of the environment", 0, 3, false, 0},
		{"negative", -1, 0, true, discovery.Config},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := &fake{answers: []answer{{peers: zone3(3)}}, sized: tt.sized}
			_, err := discovery.Await(t.Context(), p, discovery.AwaitOptions{Size: tt.size, Env: discovery.Env{Size: tt.env}})
			if kind(err) != tt.kind {
				t.Errorf("got %v, want kind %v", err, tt.kind)
			}
			if tt.kind != 0 && len(p.asked) > 0 {
				t.Error("asked before the size was known to be wrong")
			}
		})
	}
}
