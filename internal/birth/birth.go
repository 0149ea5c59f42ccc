// Package birth names the disks that a cluster is born on.
package birth

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
)

// DiskID is 128 random bits as 32 lower-case hexadecimal digits. It is written
// durably to an empty directory before any other member hears of it, so a disk
// that lost its data has another one.
type DiskID string

// NewDiskID makes a disk ID.
func NewDiskID() DiskID {
	var bits [16]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return DiskID(hex.EncodeToString(bits[:]))
}

// Valid reports whether d has the form of a disk ID.
func (d DiskID) Valid() bool {
	return len(d) == 32 && strings.Trim(string(d), "0123456789abcdef") == ""
}

// Seat is one member of a roster with the disk that it is born on.
type Seat struct {
	// Member is the member's ID in etcd's text form: lower hex without padding.
	Member string `json:"member"`
	Disk   DiskID `json:"disk"`
}

// Roster is the set of disks that are born together, in ascending order of
// their members' IDs.
type Roster []Seat

// Sort returns the seats in the order of a Roster.
func Sort(seats []Seat) Roster {
	r := Roster(slices.Clone(seats))
	slices.SortFunc(r, func(a, b Seat) int {
		return cmp.Or(cmp.Compare(len(a.Member), len(b.Member)), cmp.Compare(a.Member, b.Member))
	})
	return r
}

// Disk returns the disk of a member; "" if the roster has no such member.
func (r Roster) Disk(member string) DiskID {
	for _, s := range r {
		if s.Member == member {
			return s.Disk
		}
	}
	return ""
}

// Equal reports whether both rosters name the same disks.
func (r Roster) Equal(o Roster) bool { return slices.Equal(r, o) }

// Shared returns two members that have the same disk ID: a directory that two
// members use, or a copy of one.
func (r Roster) Shared() (a, b string, found bool) {
	for i := range r {
		for j := range i {
			if r[i].Disk == r[j].Disk {
				return r[j].Member, r[i].Member, true
			}
		}
	}
	return "", "", false
}

// ClusterID returns the cluster ID of a birth. etcd keeps its cluster ID in the
// metadata of its log, never computes it again, and refuses every raft message
// of another one. So the ID names the disks: it is the first 8 bytes, big
// endian, of the SHA-256 of
//
//	etcdinit birth 1
//	plan 6e34…                                   digest of the plan
//	member 4036b1db24775ea0 disk 0f3a…           one line a seat, ascending by member ID
//
// Every line ends in a newline. If the ID would be 0, which etcd forbids, the
// sum is hashed once more.
func (r Roster) ClusterID(planDigest string) uint64 {
	var b strings.Builder
	b.WriteString("etcdinit birth 1\nplan " + planDigest + "\n")
	for _, s := range r {
		b.WriteString("member " + s.Member + " disk " + string(s.Disk) + "\n")
	}
	sum := sha256.Sum256([]byte(b.String()))
	id := binary.BigEndian.Uint64(sum[:8])
	for id == 0 {
		sum = sha256.Sum256(sum[:])
		id = binary.BigEndian.Uint64(sum[:8])
	}
	return id
}
