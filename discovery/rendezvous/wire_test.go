package rendezvous

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const good = `{"format":1,"digest":"d","clusterID":"c1","memberID":"a1","nonce":"n","state":"waiting","members":[{"id":"a1","name":"a","peerURLs":["http://192.0.2.1:2380"]}]}`

func TestParse(t *testing.T) {
	for _, tt := range []struct{ name, in, err string }{
		{"good", good, ""},
		{"an unknown field", strings.Replace(good, `"nonce"`, `"colour":"blue","nonce"`, 1), ""},
		{"empty", "", "not an agent's JSON"},
		{"html", "<html>", "not an agent's JSON"},
		{"half", good[:40], "not an agent's JSON"},
		{"another object", `{"health":"true"}`, "format 0"},
		{"a newer format", strings.Replace(good, `"format":1`, `"format":2,"state":7`, 1), "format 2"},
		{"a state of the future", strings.Replace(good, "waiting", "dancing", 1), "state"},
		{"no state", strings.Replace(good, `"state":"waiting",`, "", 1), "state"},
		{"no digest", strings.Replace(good, `"digest":"d",`, "", 1), "digest"},
		{"no nonce", strings.Replace(good, `"nonce":"n",`, "", 1), "nonce"},
		{"no member", strings.Replace(good, `"memberID":"a1",`, "", 1), "member ID"},
		{"a padded ID", strings.Replace(good, `"memberID":"a1"`, `"memberID":"0a1"`, 1), "member ID"},
		{"an upper-case ID", strings.Replace(good, `"memberID":"a1"`, `"memberID":"A1"`, 1), "member ID"},
		{"a long ID", strings.Replace(good, `"memberID":"a1"`, `"memberID":"a1234567890123456"`, 1), "member ID"},
		{"a long name", strings.Replace(good, `"name":"a"`, `"name":"`+strings.Repeat("a", 600)+`"`, 1), "overlong"},
		{"an escape in a name", strings.Replace(good, `"name":"a"`, `"name":"\u001b[2J"`, 1), "unprintable"},
		{"a line break in a URL", strings.Replace(good, `:2380`, `\n`, 1), "unprintable"},
		{"too long", strings.Repeat(" ", maxAnswer) + good, "more than"},
		{"too many members", strings.Replace(good, `"members":[`, `"members":[`+strings.Repeat(`{"id":"a1"},`, 70), 1), "more than 64"},
		{"two answers", good + good, "not an agent's JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(strings.NewReader(tt.in))
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
		})
	}
	var format formatError
	if _, err := parse(strings.NewReader(`{"format":2}`)); !errors.As(err, &format) || int(format) != 2 {
		t.Errorf("a newer format: %v", err)
	}
}

// FuzzParse: whatever comes, what is accepted is within bounds and goes round.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(`{"format":1}`))
	f.Add([]byte(strings.Replace(good, "waiting", "released", 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := parse(bytes.NewReader(data))
		if err != nil {
			return
		}
		if !a.MemberID.valid() || a.Digest == "" || a.Nonce == "" || len(a.Members) > maxMembers {
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
		m := NewMachine("me", trio(), Waiting).Observe(Round{Peers: []Sighting{{Peer: "b1", Kind: Agent, Answer: a}}})
		_ = m.String()
	})
}

// FuzzCall: a caller's header never becomes more than a reason to look.
func FuzzCall(f *testing.F) {
	f.Add("a1 n waiting")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if c, ok := parseCall(s); ok && !c.id.valid() {
			t.Fatalf("accepted %q", s)
		}
	})
}
