//go:build e2e

package torture

import (
	"testing"
	"time"
)

func TestContradictions(t *testing.T) {
	at := func(r record, call, ret int) record {
		r.key, r.call, r.ret = "k", time.Duration(call), time.Duration(ret)
		return r
	}
	w := func(value string, o outcome) record { return record{action: put, value: value, outcome: o} }
	rd := func(got string) record { return record{action: get, got: got} }
	cas := func(old, value string, swapped bool, o outcome) record {
		return record{action: swap, old: old, value: value, swapped: swapped, outcome: o}
	}
	not := func(old, value, got string) record { return record{action: swap, old: old, value: value, got: got} }
	tests := []struct {
		name    string
		records []record
		bad     bool
	}{
		{"a write and its read", []record{at(w("a", ok), 0, 1), at(rd("a"), 2, 3)}, false},
		{"a lost write", []record{at(w("a", ok), 0, 1), at(rd(""), 2, 3)}, true},
		{"a read beside a write", []record{at(w("a", ok), 0, 5), at(rd(""), 2, 3)}, false},
		{"a stale read", []record{at(w("a", ok), 0, 1), at(w("b", ok), 2, 3), at(rd("a"), 4, 5)}, true},
		{"two answers at once", []record{at(w("a", ok), 0, 1), at(rd("a"), 2, 3), at(rd(""), 2, 3)}, true},
		{"an unknown write that is seen late", []record{at(w("a", unknown), 0, 1), at(rd(""), 2, 3), at(rd("a"), 4, 5)}, false},
		{"an unknown write that is seen and gone", []record{at(w("a", unknown), 0, 1), at(rd("a"), 2, 3), at(rd(""), 4, 5)}, true},
		{"an unknown write that nobody saw", []record{at(w("a", unknown), 0, 1), at(rd(""), 2, 3)}, false},
		{"a write that failed and is seen", []record{at(w("a", failed), 0, 1), at(rd("a"), 2, 3)}, true},
		{"swapped", []record{at(w("a", ok), 0, 1), at(cas("a", "b", true, ok), 2, 3), at(rd("b"), 4, 5)}, false},
		{"swapped what was not there", []record{at(w("a", ok), 0, 1), at(cas("", "b", true, ok), 2, 3)}, true},
		{"not swapped what was there", []record{at(w("a", ok), 0, 1), at(not("a", "b", "a"), 2, 3)}, true},
		{"not swapped, and what was there was not", []record{at(w("a", ok), 0, 1), at(not("b", "c", ""), 2, 3)}, true},
		{"not swapped, for an unknown write", []record{at(w("a", ok), 0, 1), at(w("b", unknown), 2, 3), at(not("a", "c", "b"), 4, 5)}, false},
		{"both swapped", []record{at(cas("", "b", true, ok), 2, 5), at(cas("", "c", true, ok), 2, 5)}, true},
		{"an unknown swap that is seen", []record{at(cas("", "b", false, unknown), 0, 1), at(rd("b"), 4, 5)}, false},
		{"an unknown swap that cannot be", []record{at(w("a", ok), 0, 1), at(cas("", "b", false, unknown), 2, 3), at(rd("b"), 4, 5)}, true},
		{"another key", []record{at(w("a", ok), 0, 1), {action: get, key: "other", call: 2, ret: 3}}, false},
		{"a member's own store may lag", []record{at(w("a", ok), 0, 1), at(record{action: get, serializable: true}, 2, 3)}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := contradictions(tt.records); len(got) > 0 != tt.bad {
				t.Errorf("findings %q, want some: %t", got, tt.bad)
			}
		})
	}
}

func TestTwoClusters(t *testing.T) {
	a := record{action: put, cluster: 1}
	b := record{action: put, cluster: 2}
	c := record{action: put, cluster: 2, outcome: unknown}
	d := record{action: get, cluster: 2}
	if got := twoClusters([]record{a, a, c, d}); len(got) != 0 {
		t.Errorf("one cluster has acknowledged writes, and the finding is %q", got)
	}
	if got := twoClusters([]record{a, b}); len(got) != 1 {
		t.Errorf("two clusters have acknowledged writes, and the findings are %q", got)
	}
}

func TestTwins(t *testing.T) {
	r := func(cluster uint64, member string, disk int) record {
		return record{action: get, cluster: cluster, member: member, disk: disk}
	}
	good := []record{r(1, "m1", 1), r(1, "m2", 2), r(1, "m1", 1), r(2, "m1", 3), r(1, "m2", 0), {outcome: failed, cluster: 1, member: "m1", disk: 7}}
	if got := twins(good); len(got) != 0 {
		t.Errorf("every member has one disk in its cluster, and the findings are %q", got)
	}
	if got := twins(append(good, r(1, "m2", 4))); len(got) != 1 {
		t.Errorf("m2 has two disks, and the findings are %q", got)
	}
}
