package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/etcdinit/etcdinit/cmd/internal/agent"
	"github.com/etcdinit/etcdinit/seed"
)

func TestEncodeReport(t *testing.T) {
	many := make([]seed.Member, 60)
	for i := range many {
		many[i] = seed.Member{Name: "etcd", PeerURLs: []string{"https://a-long-name-of-a-host.example.org:2380"}}
	}
	tests := []struct {
		name string
		in   outcome
	}{
		{"small", outcome{Message: "seeded", Result: &agent.Result{}}},
		{"many members", outcome{Message: "seeded", Result: &agent.Result{Members: many, Name: "etcd-0"}}},
		{"a long message", outcome{Message: strings.Repeat("long ", 2000), Status: 34}},
		{"a message a little too long", outcome{Message: strings.Repeat("x", 4090), Status: 34}},
		{"a message a little too long, of long runes", outcome{Message: strings.Repeat("…", 1358), Status: 34}},
		{"a message of quotes", outcome{Message: strings.Repeat("\"\\\x01é", 3000), Status: 34, Result: &agent.Result{Warnings: []string{strings.Repeat("x", 5000)}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := encodeReport(tt.in)
			if len(data) > reportLimit {
				t.Errorf("%d bytes", len(data))
			}
			if !strings.HasPrefix(string(data), `{"message":"`) {
				t.Errorf("the message is not first: %.80s", data)
			}
			var back map[string]any
			if err := json.Unmarshal(data, &back); err != nil {
				t.Fatal(err)
			}
			if got := back["status"]; got != float64(tt.in.Status) {
				t.Errorf("status %v", got)
			}
			if tt.in.Result != nil && tt.in.Name != "" && back["name"] != tt.in.Name {
				t.Errorf("the name was dropped: %v", back["name"])
			}
		})
	}
}
