package agent

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/seed"
)

// stock fills a node's directory as a cluster does whose operators chose the names
// themselves; change edits the members before.
func (n *node) stock(t *testing.T, change func(i int, m *seed.Member)) {
	t.Helper()
	spec := n.spec()
	self := ""
	for i := range spec.Members {
		m := &spec.Members[i]
		own := m.Name == n.name
		m.Name = "infra" + strings.TrimPrefix(m.Name, "m")
		change(i, m)
		if own {
			self = m.Name
		}
	}
	spec.Self = self
	plan, err := seed.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(t.Context(), zap.NewNop()); err != nil {
		t.Fatal(err)
	}
}

// TestAdopted: data of a stock cluster whose entry has this node's peer URLs are
// this node's, whatever the names are: the stored name is used, with one notice.
func TestAdopted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		flags  []etcdconf.Flag
		change func(l *lab, i int, m *seed.Member)
		cfg    func(*Config)
	}{
		{"other names", nil, func(*lab, int, *seed.Member) {}, nil},
		{"other names, name in the configuration", []etcdconf.Flag{etcdFlag("name", "infra1")}, func(*lab, int, *seed.Member) {}, nil},
		{"other names, the records' name in the configuration", []etcdconf.Flag{etcdFlag("name", "m1")}, func(*lab, int, *seed.Member) {}, nil},
		{"--self-name", nil, func(*lab, int, *seed.Member) {}, func(c *Config) { c.SelfName = "m1" }},
		{"a name in the configuration that the records give another", []etcdconf.Flag{etcdFlag("name", "m2")}, func(*lab, int, *seed.Member) {}, nil},
		{"one more URL", nil, func(_ *lab, _ int, m *seed.Member) {
			m.PeerURLs = append(m.PeerURLs, "http://alias-"+m.Name+".example.org:2380")
		}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 3)
			n := l.node(t, "m1")
			n.flags = tt.flags
			n.stock(t, func(i int, m *seed.Member) { tt.change(l, i, m) })
			var change []func(*Config)
			if tt.cfg != nil {
				change = append(change, tt.cfg)
			}
			res := n.start(t, change...).ok()
			named := slices.DeleteFunc(slices.Clone(res.Warnings), func(w string) bool { return !strings.Contains(w, "infra1") })
			if res.Action != Kept || res.Name != "infra1" || res.Handoff.Name != "infra1" || len(named) != 1 || !strings.Contains(named[0], "m1") && !strings.Contains(named[0], "m2") {
				t.Errorf("%s as %s, %q", res.Action, res.Name, res.Warnings)
			}
		})
	}
}

// TestAddressStored: data with this node's address where the records have a name are
// refused with the line that puts it right.
func TestAddressStored(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	n := l.node(t, "m1")
	n.stock(t, func(i int, m *seed.Member) {
		m.PeerURLs = []string{"http://" + l.addr(l.ip(i+1))}
		m.ClientURLs = []string{"http://" + l.ip(i+1) + ":2379"}
	})
	_, err := n.start(t).end()
	wantRefusal(t, err, exit.Foreign, "address-stored", "belongs to infra1", "the records have its name")
	want := "etcdctl --endpoints=http://" + n.ip + ":2379 member update " + n.state(t).MemberID.String() + " --peer-urls=" + l.peerURL("m1")
	if e := exit.Refusal(err); len(e.Commands) != 1 || e.Commands[0] != want {
		t.Errorf("got %q, want %q", e.Commands, want)
	}
}
