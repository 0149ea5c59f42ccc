package rendezvous

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/internal/birth"
)

const good = `{"format":2,"digest":"d","memberID":"a1","nonce":"n","state":"waiting","members":[{"id":"a1","name":"a","peerURLs":["http://192.0.2.1:2380"]}]}`

// goodIn is a whole answer of a state, as JSON.
func goodIn(tb testing.TB, state State, change func(*Answer)) string {
	tb.Helper()
	m := NewMachine(start(state)).Observe(round(agentAt("b1", "nb", Prepared), agentAt("c2", "nc", Prepared)), 0)
	a := m.Answer()
	a.Proposal, a.Roster = slices.Clone(a.Proposal), slices.Clone(a.Roster)
	if change != nil {
		change(&a)
	}
	data, err := json.Marshal(a)
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

func TestParse(t *testing.T) {
	in := func(state State, change func(*Answer)) string { return goodIn(t, state, change) }
	many := make([]string, 70)
	for _, tt := range []struct{ name, in, err string }{
		{"good", good, ""},
		{"waiting", in(Waiting, nil), ""},
		{"prepared", in(Prepared, nil), ""},
		{"prepared, without a proposal", in(Prepared, func(a *Answer) { a.Proposal = nil }), ""},
		{"committed", in(Committed, nil), ""},
		{"released", in(Released, nil), ""},
		{"an unknown field", strings.Replace(good, `"nonce"`, `"colour":"blue","nonce"`, 1), ""},
		{"empty", "", "not an agent's JSON"},
		{"html", "<html>", "not an agent's JSON"},
		{"half", good[:40], "not an agent's JSON"},
		{"another object", `{"health":"true"}`, "format 0"},
		{"the first edition", strings.Replace(good, `"format":2`, `"format":1`, 1), "format 1"},
		{"a newer format", strings.Replace(good, `"format":2`, `"format":3,"state":7`, 1), "format 3"},
		{"a state of the future", strings.Replace(good, "waiting", "dancing", 1), "state"},
		{"no state", strings.Replace(good, `"state":"waiting",`, "", 1), "state"},
		{"a field of another type", strings.Replace(good, `"nonce":"n"`, `"nonce":7`, 1), "not an agent's JSON"},
		{"no digest", strings.Replace(good, `"digest":"d",`, "", 1), "digest"},
		{"no nonce", strings.Replace(good, `"nonce":"n",`, "", 1), "nonce"},
		{"no member", strings.Replace(good, `"memberID":"a1",`, "", 1), "member ID"},
		{"a padded ID", strings.Replace(good, `"memberID":"a1"`, `"memberID":"0a1"`, 1), "member ID"},
		{"an upper-case ID", strings.Replace(good, `"memberID":"a1"`, `"memberID":"A1"`, 1), "member ID"},
		{"a long ID", strings.Replace(good, `"memberID":"a1"`, `"memberID":"a1234567890123456"`, 1), "member ID"},
		{"a member without an ID", strings.Replace(good, `"id":"a1"`, `"id":""`, 1), "no ID"},
		{"a long name", strings.Replace(good, `"name":"a"`, `"name":"`+strings.Repeat("a", 600)+`"`, 1), "overlong"},
		{"an escape in a name", strings.Replace(good, `"name":"a"`, `"name":"\u001b[2J"`, 1), "unprintable"},
		{"a line break in a URL", strings.Replace(good, `:2380`, `\n`, 1), "unprintable"},
		{"too long", strings.Repeat(" ", maxAnswer) + good, "more than"},
		{"too many members", strings.Replace(good, `"members":[`, `"members":[`+strings.Repeat(`{"id":"a1"},`, 70), 1), "more than 64"},
		{"too many left out", in(Waiting, func(a *Answer) { a.Without = many }), "more than 64"},
		{"too many seats", in(Prepared, func(a *Answer) { a.Proposal = make([]Seat, 70) }), "more than 64"},
		{"two answers", good + good, "not an agent's JSON"},
		{"a disk ID while waiting", in(Waiting, func(a *Answer) { a.Disk = diskA }), "with disk ID"},
		{"no disk ID when prepared", in(Prepared, func(a *Answer) { a.Disk = "" }), "with disk ID"},
		{"a short disk ID", in(Prepared, func(a *Answer) { a.Disk = "abc" }), "with disk ID"},
		{"an upper-case disk ID", in(Prepared, func(a *Answer) { a.Disk = birth.DiskID(strings.Repeat("A", 32)) }), "with disk ID"},
		{"a proposal when committed", in(Committed, func(a *Answer) { a.Proposal = proposed("a", "b", "c") }), "in its proposal"},
		{"a roster when prepared", in(Prepared, func(a *Answer) { a.Roster = allThree() }), "in its roster"},
		{"no roster when committed", in(Committed, func(a *Answer) { a.Roster = nil }), "in its roster"},
		{"another disk of its sender", in(Committed, func(a *Answer) { a.Disk = diskX }), "another disk for its sender"},
		{"another cluster ID", in(Committed, func(a *Answer) { a.ClusterID = "c1" }), "not its roster's"},
		{"no cluster ID", in(Released, func(a *Answer) { a.ClusterID = "" }), "not its roster's"},
		{"a cluster ID of another plan", in(Released, func(a *Answer) { a.Digest = "e" }), "not its roster's"},
		{"a seat without a member", in(Prepared, func(a *Answer) { a.Proposal[1].Member = "" }), "seat"},
		{"a seat without a disk", in(Prepared, func(a *Answer) { a.Proposal[1].Disk = "x" }), "seat"},
		{"an escape in a run", in(Prepared, func(a *Answer) { a.Proposal[1].Nonce = "\x1b" }), "unprintable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(strings.NewReader(tt.in))
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
	var format formatError
	if _, err := parse(strings.NewReader(`{"format":3}`)); !errors.As(err, &format) || int(format) != 3 {
		t.Errorf("a newer format: %v", err)
	}
}

// TestClean: what is shown of a stranger's text.
func TestClean(t *testing.T) {
	if got := clean("a\x1b[2J\nb"); got != "a?[2J?b" {
		t.Errorf("%q", got)
	}
	if got := len(clean(strings.Repeat("a", 600))); got != maxText {
		t.Errorf("%d bytes", got)
	}
	if got := len(cleanAll(make([]string, 100))); got != maxMembers {
		t.Errorf("%d texts", got)
	}
}

// FuzzParse: whatever comes, what is accepted is within bounds and goes round.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"format":2}`))
	for _, state := range []State{Waiting, Prepared, Committed, Released} {
		f.Add([]byte(goodIn(f, state, nil)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parse(bytes.NewReader(data))
		if err != nil {
			return
		}
		bound := a.State == Committed || a.State == Released
		if !a.MemberID.valid() || a.Digest == "" || a.Nonce == "" || len(a.Members) > maxMembers || bound && text(a.Roster.ClusterID(a.Digest)) != a.ClusterID {
			t.Fatalf("accepted %+v", a)
		}
		out, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if len(out) <= maxAnswer {
			if _, err := parse(bytes.NewReader(out)); err != nil {
				t.Fatalf("does not go round: %v", err)
			}
		}
		for _, state := range []State{Waiting, Prepared, Committed, Released} {
			m := NewMachine(start(state)).Observe(round(Sighting{Peer: "b1", Kind: Agent, Answer: a}), 0)
			_, _ = m.String(), m.View()
		}
	})
}

// FuzzCall: a caller's header never becomes more than a reason to look.
func FuzzCall(f *testing.F) {
	f.Add("a1 n waiting -")
	f.Add("")
	f.Add("a1 n waiting - more")
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := parseCall(s)
		if ok && (!c.id.valid() || len(s) > maxText || c.String() != s) {
			t.Fatalf("accepted %q as %+v", s, c)
		}
		if !ok && c != (call{}) {
			t.Fatalf("refused %q, and took %+v", s, c)
		}
	})
}
