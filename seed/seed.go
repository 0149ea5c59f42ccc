package seed

import (
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
)

// Member is one member as the WAL and the members bucket hold it.
type Member struct {
	ID         types.ID `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs,omitempty"`
	IsLearner  bool     `json:"isLearner,omitempty"`
}

// Owner is the user and group that own what is written.
type Owner struct{ UID, GID int }

// Spec says which member's directory is wanted. Member IDs in it are ignored:
// they follow from the peer URLs and the token.
type Spec struct {
	DataDir string
	WALDir  string // "": DataDir/member/wal
	Token   string // initial-cluster-token
	Members []Member
	Self    string // name of the member that DataDir is for
	// MaxLearners is etcd's max-learners; 0 means etcd's default, 1.
	MaxLearners int
	// Owner nil: the owner of DataDir (or of its nearest existing parent).
	Owner *Owner
}

// Kind is what a data directory is.
type Kind string

const (
	// Empty means nothing of an etcd in it; foreign files may be there.
	Empty Kind = "empty"
	// Valid means a complete directory that etcd starts from.
	Valid Kind = "valid"
	// Broken means half-written, mixed or corrupt; Reason says the first cause.
	Broken Kind = "broken"
)

// State is what Inspect found. Inspect never writes.
type State struct {
	Kind    Kind   `json:"kind"`
	Reason  string `json:"reason,omitempty"` // Broken: the first reason, with its path
	DataDir string `json:"dataDir"`
	WALDir  string `json:"walDir"`
	// Misplaced: DataDir or WALDir is there and is no directory (Broken only).
	Misplaced bool `json:"misplaced,omitempty"`

	// LogLost: what this member has voted may be lost with what is damaged (Broken
	// only): it must not come back under its old ID.
	LogLost bool `json:"logLost,omitempty"`
	// LogAlone: there is no database, and the log is whole: etcd makes it anew.
	LogAlone bool `json:"logAlone,omitempty"`
	// Unused is a member directory that an etcd has made and never used (Empty only).
	// It is moved aside when the directory is written to.
	Unused string `json:"unused,omitempty"`

	// Identity, from the WAL's metadata and the members bucket (Valid only).
	MemberID  types.ID   `json:"memberID,omitempty"`
	ClusterID types.ID   `json:"clusterID,omitempty"`
	Self      *Member    `json:"self,omitempty"`
	Members   []Member   `json:"members,omitempty"`
	Removed   []types.ID `json:"removed,omitempty"` // members_removed

	// Pristine: term 1, vote 0, last index N: no etcd has run on it.
	Pristine bool `json:"pristine"`
	// Fed: nothing but what Plan.Fed makes is in the log, so the database came from
	// another member, and no etcd has run on it.
	Fed bool `json:"fed,omitempty"`
	// Pending: the seed is committed but not released. Without a Record it is one
	// of the first edition.
	Pending bool `json:"pending"`
	// DiskID is the ID of an Empty directory, the same in a separate wal-dir;
	// "" where nothing is prepared.
	DiskID DiskID `json:"diskID,omitempty"`
	// Unfinished: a commit was cut short between its two renames (Empty only).
	// Clean completes it, or takes it back.
	Unfinished bool `json:"unfinished,omitempty"`
	// Record says how the directory was seeded; nil where it has no record.
	Record *Record `json:"record,omitempty"`
	// RecordProblem says why a record that is there cannot be used.
	RecordProblem string `json:"recordProblem,omitempty"`
	// Withdrawn are the clusters whose pending seed was moved aside here (see
	// Withdraw), and is there still with its mark.
	Withdrawn []types.ID `json:"withdrawn,omitempty"`
	// Sight is what the directory was when it was examined (see Look).
	Sight Sight `json:"-"`
	// PackageDefault: a one-member cluster on localhost, as a distribution's
	// package starts it at install.
	PackageDefault bool `json:"packageDefault,omitempty"`
	// Ignored names the files that are neither ours nor etcd's living ones
	// (*.broken, *.tmp); Leftovers our own staging directories of a run that
	// was killed; Foreign everything else.
	Ignored   []string `json:"ignored,omitempty"`
	Leftovers []string `json:"leftovers,omitempty"`
	// Staged are the directories in which an earlier run keeps the database of a
	// snapshot (see Stage).
	Staged  []string `json:"staged,omitempty"`
	Foreign []string `json:"foreign,omitempty"`

	Segments int       `json:"segments,omitempty"` // WAL segments
	DBSize   int64     `json:"dbSize,omitempty"`   // bytes
	Modified time.Time `json:"modified,omitzero"`  // of the newest WAL segment
}
