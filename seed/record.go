package seed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/etcdinit/etcdinit/internal/birth"
)

// DiskID names an empty directory before a cluster is born on it.
type DiskID = birth.DiskID

// Seat is one member of a roster with the disk that it is born on.
type Seat = birth.Seat

// Roster is the set of disks that are born together.
type Roster = birth.Roster

const (
	// RecordBirth is the kind of a seed whose cluster ID names the disks of its roster.
	RecordBirth = "birth"
	// RecordComputed is the kind of a seed with the cluster ID that etcd would compute.
	RecordComputed = "computed"
	// RecordJoin is the kind of a seed for a member that a running cluster has added.
	RecordJoin = "join"
	// RecordRescue is the kind of a seed that takes the seat of a member that has never
	// run, in a cluster without a quorum.
	RecordRescue = "rescue"

	recordVersion = 1
	// recordLimit bounds what is read of a record.
	recordLimit = 1 << 20
)

// Record says how a directory was seeded. It is written with the seed, appears in
// the same rename, and stays for the life of the directory.
type Record struct {
	Kind       string // RecordBirth, RecordComputed, RecordJoin or RecordRescue
	Name       string
	PeerURLs   []string
	ClientURLs []string
	MemberID   types.ID
	ClusterID  types.ID
	DiskID     DiskID // birth only
	Roster     Roster // birth only
	Token      string
	PlanDigest string   // not of a join
	Members    []Member // join only: what the cluster listed, this member among them
	Restored   *Content // the snapshot that it was born with; nil for none
}

// recordFile is the record in JSON.
type recordFile struct {
	Version    int      `json:"version"`
	Kind       string   `json:"kind"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs,omitempty"`
	MemberID   string   `json:"memberID"`
	ClusterID  string   `json:"clusterID"`
	DiskID     DiskID   `json:"diskID,omitempty"`
	Roster     Roster   `json:"roster,omitempty"`
	Token      string   `json:"token"`
	PlanDigest string   `json:"planDigest,omitempty"`
	Members    []Member `json:"members,omitempty"`
	Restored   *Content `json:"restored,omitempty"`
}

// Record is the record that Apply writes.
func (p *Plan) Record() *Record {
	r := &Record{
		Kind:       p.kind,
		Name:       p.Self.Name,
		PeerURLs:   slices.Clone(p.Self.PeerURLs),
		ClientURLs: slices.Clone(p.Self.ClientURLs),
		MemberID:   p.MemberID,
		ClusterID:  p.ClusterID,
		Token:      p.Token,
		Restored:   p.Restored,
	}
	switch p.kind {
	case RecordJoin, RecordRescue:
		r.Members = slices.Clone(p.Members)
		return r
	case RecordBirth:
		r.DiskID, r.Roster = p.DiskID, slices.Clone(p.Roster)
	}
	r.PlanDigest = p.Digest()
	return r
}

// MarshalJSON is the record with its version, and with its IDs as text.
func (r Record) MarshalJSON() ([]byte, error) {
	return json.Marshal(recordFile{
		recordVersion, r.Kind, r.Name, r.PeerURLs, r.ClientURLs, r.MemberID.String(), r.ClusterID.String(),
		r.DiskID, r.Roster, r.Token, r.PlanDigest, r.Members, r.Restored,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote, and refuses a record that
// contradicts itself.
func (r *Record) UnmarshalJSON(data []byte) error {
	var v struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return err
	}
	if v.Version == nil {
		return errors.New("it has no version")
	}
	if *v.Version != recordVersion {
		return fmt.Errorf("its version is %d, this etcdinit knows version %d", *v.Version, recordVersion)
	}
	var f recordFile
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	member, err := types.IDFromString(f.MemberID)
	if err != nil {
		return fmt.Errorf("memberID %q is not an ID", f.MemberID)
	}
	cluster, err := types.IDFromString(f.ClusterID)
	if err != nil {
		return fmt.Errorf("clusterID %q is not an ID", f.ClusterID)
	}
	got := Record{f.Kind, f.Name, f.PeerURLs, f.ClientURLs, member, cluster, f.DiskID, f.Roster, f.Token, f.PlanDigest, f.Members, f.Restored}
	if err := got.check(); err != nil {
		return err
	}
	*r = got
	return nil
}

func (r *Record) check() error {
	if r.Kind == RecordComputed || r.Kind == RecordJoin || r.Kind == RecordRescue {
		if r.DiskID != "" || len(r.Roster) > 0 {
			return fmt.Errorf("it is of the kind %q, but has a disk ID or a roster", r.Kind)
		}
		if r.Kind != RecordComputed && r.self() == nil {
			return fmt.Errorf("its members do not have its own, %s", r.MemberID)
		}
		return nil
	}
	switch {
	case r.Kind != RecordBirth:
		return fmt.Errorf("its kind %q is not known", r.Kind)
	case !r.DiskID.Valid():
		return fmt.Errorf("diskID %q is not a disk ID", r.DiskID)
	case r.Roster.Disk(r.MemberID.String()) != r.DiskID:
		return fmt.Errorf("its roster does not have disk %s for member %s", r.DiskID, r.MemberID)
	case types.ID(r.Roster.ClusterID(r.PlanDigest)) != r.ClusterID:
		return fmt.Errorf("its cluster ID %s does not follow from its roster and plan", r.ClusterID)
	}
	return nil
}

// self is the entry of a join's own member, with what its etcd is going to publish.
func (r *Record) self() *Member {
	for _, m := range r.Members {
		if m.ID == r.MemberID {
			m.Name, m.ClientURLs = r.Name, slices.Clone(r.ClientURLs)
			return &m
		}
	}
	return nil
}

// text is the record as the file holds it.
func (r *Record) text() (string, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return string(data) + "\n", err
}

// readRecord reads a record from an open file.
func readRecord(f io.Reader) (*Record, error) {
	data, err := io.ReadAll(io.LimitReader(f, recordLimit+1))
	if err != nil {
		return nil, err
	}
	if len(data) > recordLimit {
		return nil, fmt.Errorf("it is longer than %d bytes", recordLimit)
	}
	r := &Record{}
	return r, json.Unmarshal(data, r)
}

func openRecord(path string) (*Record, error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the directory
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	return readRecord(f)
}
