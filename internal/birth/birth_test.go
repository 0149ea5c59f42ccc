package birth

import (
	"strings"
	"testing"
)

func TestDiskID(t *testing.T) {
	a, b := NewDiskID(), NewDiskID()
	if a == b || !a.Valid() || !b.Valid() {
		t.Errorf("two new disk IDs: %q, %q", a, b)
	}
	for _, bad := range []DiskID{"", a[1:], "X" + a[1:], DiskID(strings.ToUpper("abcdef" + string(a[6:])))} {
		if bad.Valid() {
			t.Errorf("%q passes for a disk ID", bad)
		}
	}
}

// TestClusterID pins the hash: every version of the program must compute the
// same ID of the same birth.
func TestClusterID(t *testing.T) {
	disk := func(c string) DiskID { return DiskID(strings.Repeat(c, 32)) }
	r := Sort([]Seat{{"4036b1db24775ea0", disk("b")}, {"5ea0", disk("a")}})
	if r[0].Member != "5ea0" {
		t.Fatalf("not in the order of the IDs: %v", r)
	}
	// printf 'etcdinit birth 1\nplan d1\nmember 5ea0 disk aaaa…\nmember 4036… disk bbbb…\n' | sha256sum
	if got, want := r.ClusterID("d1"), uint64(0x122209666f32a4ff); got != want {
		t.Errorf("cluster ID %x, want %x", got, want)
	}
	seen := map[uint64]bool{r.ClusterID("d1"): true}
	for _, other := range []uint64{
		r.ClusterID("d2"),
		Sort([]Seat{{"4036b1db24775ea0", disk("b")}, {"5ea0", disk("c")}}).ClusterID("d1"),
		Sort([]Seat{{"4036b1db24775ea0", disk("a")}, {"5ea0", disk("b")}}).ClusterID("d1"),
		Sort([]Seat{{"5ea0", disk("a")}}).ClusterID("d1"),
	} {
		if seen[other] {
			t.Errorf("another birth has the ID %x too", other)
		}
		seen[other] = true
	}
}

func TestShared(t *testing.T) {
	one, two := NewDiskID(), NewDiskID()
	if _, _, found := Sort([]Seat{{"a", one}, {"b", two}}).Shared(); found {
		t.Error("two disks pass for one")
	}
	if a, b, found := Sort([]Seat{{"a", one}, {"b", two}, {"c", one}}).Shared(); !found || a != "a" || b != "c" {
		t.Errorf("one disk of two members: %s, %s, %t", a, b, found)
	}
}
