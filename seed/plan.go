package seed

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/seed/internal/raftlog"
)

// Plan is what Apply is going to write: facts only, nothing has been touched.
type Plan struct {
	ClusterID types.ID `json:"clusterID"`
	MemberID  types.ID `json:"memberID"`
	Self      Member   `json:"self"`
	Members   []Member `json:"members"` // ascending by ID
	Token     string   `json:"token"`
	DataDir   string   `json:"dataDir"`
	WALDir    string   `json:"walDir"`
	Files     []File   `json:"files"`
	// Pending: the seed appears together with the mark that Release removes.
	Pending bool `json:"pending"`
	// DiskID and Roster are those of a birth (see Born).
	DiskID DiskID `json:"diskID,omitempty"`
	Roster Roster `json:"roster,omitempty"`

	// Restored is the snapshot whose content the members are born with; nil for none.
	Restored *Content `json:"restored,omitempty"`

	kind    string // of the record
	owner   *Owner
	dirs    layout
	content content
}

// File is one file of a plan.
type File struct {
	Path string `json:"path"`
	// Size in bytes; of the database an upper bound, since bbolt grows in steps.
	Size int64 `json:"size"`
}

// New makes the plan for spec, with the cluster ID that etcd itself would compute;
// Born gives it that of a birth. It reads and writes nothing. An error is of kind
// Invalid and names the member and the value.
func New(spec Spec) (*Plan, error) {
	dirs, err := newLayout(spec.DataDir, spec.WALDir)
	if err != nil {
		return nil, err
	}
	members, err := buildMembers(spec)
	if err != nil {
		return nil, err
	}
	cluster, err := clusterID(spec.Token, members)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		ClusterID: cluster,
		Token:     spec.Token,
		DataDir:   dirs.data,
		WALDir:    dirs.wal,
		kind:      RecordComputed,
		owner:     spec.Owner,
		dirs:      dirs,
	}
	seeds := bootstrap{members: members}
	for _, m := range members {
		member := fromEtcd(m)
		p.Members = append(p.Members, member)
		if m.Name == spec.Self {
			p.Self, p.MemberID, seeds.self = member, m.ID, m
		}
	}
	p.content = seeds
	if seeds.self == nil {
		return nil, invalid("the member to seed, %q, is not among the %d members %s", spec.Self, len(members), names(members))
	}
	if err := p.listFiles(); err != nil {
		return nil, err
	}
	return p, nil
}

// listFiles fills Files.
func (p *Plan) listFiles() error {
	record, err := p.Record().text()
	if err != nil {
		return err
	}
	p.Files = []File{
		{Path: filepath.Join(p.dirs.data, dbFile), Size: p.content.dbSize()},
		{Path: filepath.Join(p.dirs.wal, raftlog.FirstSegment), Size: raftlog.SegmentSize()},
		{Path: filepath.Join(p.dirs.data, recordFileName), Size: int64(len(record))},
	}
	if p.Pending {
		p.Files = append(p.Files, File{Path: filepath.Join(p.dirs.data, p.mark()), Size: int64(len(pendingText))})
	}
	return nil
}

// mark is the path in the data-dir of the mark "not released yet".
func (p *Plan) mark() string { return filepath.Join(memberDir, markName(p.ClusterID)) }

// Born is the plan with the cluster ID of a birth on the disks of r: a copy. With
// pending the seed is not released yet; without it, r must have one seat only.
// Apply refuses a roster that does not fit the plan.
func (p *Plan) Born(r Roster, pending bool) *Plan {
	b := *p
	b.kind, b.Pending = RecordBirth, pending
	b.Roster = slices.Clone(r)
	b.ClusterID = types.ID(r.ClusterID(p.Digest()))
	b.DiskID = r.Disk(p.MemberID.String())
	if err := b.listFiles(); err != nil { // a record is always written as JSON
		b.Files = nil
	}
	return &b
}

// born: the cluster ID names the disks of a birth.
func (p *Plan) born() bool { return p.kind == RecordBirth }

// Joined is what a running cluster has made of a node that asked to come in.
type Joined struct {
	ClusterID types.ID
	// Self is the new member with the ID that the cluster has given it, and with the
	// name and the client URLs that its etcd is going to publish.
	Self Member
	// Members are all that the cluster lists, Self among them.
	Members []Member
}

// NewJoiner makes the plan of a directory for a member that a running cluster has
// added. It is pending until Release: a reader that finds it that way has not yet proved
// that the cluster reaches this node. Only the directories, the token and the owner
// of spec are used. It reads and writes nothing.
func NewJoiner(spec Spec, joined Joined) (*Plan, error) {
	dirs, err := newLayout(spec.DataDir, spec.WALDir)
	if err != nil {
		return nil, err
	}
	self := joined.Self
	if self.ID == 0 || joined.ClusterID == 0 || self.Name == "" || len(self.PeerURLs) == 0 {
		return nil, invalid("a joining member needs its ID (%s), its cluster's (%s), a name (%q) and peer URLs (%v)", self.ID, joined.ClusterID, self.Name, self.PeerURLs)
	}
	p := &Plan{
		ClusterID: joined.ClusterID, MemberID: self.ID, Self: self, Members: slices.Clone(joined.Members), Token: spec.Token,
		DataDir: dirs.data, WALDir: dirs.wal, Pending: true,
		kind: RecordJoin, owner: spec.Owner, dirs: dirs, content: joiner{},
	}
	slices.SortFunc(p.Members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	if err := p.listFiles(); err != nil {
		return nil, err
	}
	return p, nil
}

// clusterID derives the cluster's ID from the members' IDs, as etcd does.
func clusterID(token string, members []*membership.Member) (types.ID, error) {
	urls := types.URLsMap{}
	for _, m := range members {
		u, err := types.NewURLs(m.PeerURLs)
		if err != nil {
			return 0, invalid("member %q: peer URLs: %v", m.Name, err)
		}
		urls[m.Name] = u
	}
	cl, err := membership.NewClusterFromURLsMap(zap.NewNop(), token, urls)
	if err != nil {
		return 0, invalid("cluster with token %q: %v", token, err)
	}
	return cl.ID(), nil
}

// Digest is the hexadecimal SHA-256 of the plan's canonical text, which all
// members of one cluster must agree on before any of them starts:
//
//	etcdinit plan 1
//	token "etcd-cluster"
//	member "etcd-0" voter "http://192.0.2.10:2380"
//	member "etcd-1" learner "http://192.0.2.11:2380" "http://192.0.2.21:2380"
//
// The members are in ascending order of their IDs, a member's URLs in etcd's own
// order, strings are quoted as Go quotes them, and every line ends in a newline. A plan
// that restores a snapshot has one line more, which names its database and what is added
// to its revision:
//
//	restore "e3b0c442…" bump 1000000000
//
// Client URLs, paths, and whose directory it is have no part in it.
func (p *Plan) Digest() string {
	var b strings.Builder
	b.WriteString("etcdinit plan 1\n")
	fmt.Fprintf(&b, "token %q\n", p.Token)
	for _, m := range p.Members {
		fmt.Fprintf(&b, "member %q %s", m.Name, role(m))
		for _, u := range m.PeerURLs {
			b.WriteString(" " + strconv.Quote(u))
		}
		b.WriteString("\n")
	}
	if r := p.Restored; r != nil {
		fmt.Fprintf(&b, "restore %q bump %d\n", r.SHA256, r.Bump)
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

// String says in lines what Apply is going to write.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %s, token %q, %d members\n", p.ClusterID, p.Token, len(p.Members))
	width := 0
	for _, m := range p.Members {
		width = max(width, len(m.Name))
	}
	for _, m := range p.Members {
		sign := " "
		if m.ID == p.MemberID {
			sign = "*"
		}
		fmt.Fprintf(&b, "%s %16s  %-*s  %-7s  peer %s", sign, m.ID, width, m.Name, role(m), strings.Join(m.PeerURLs, ","))
		if len(m.ClientURLs) > 0 {
			fmt.Fprintf(&b, "  client %s", strings.Join(m.ClientURLs, ","))
		}
		b.WriteString("\n")
	}
	if r := p.Restored; r != nil {
		fmt.Fprintf(&b, "content %s\n", r)
	}
	if p.born() {
		fmt.Fprintf(&b, "disk %s\n", p.DiskID)
	}
	b.WriteString("files\n")
	for _, f := range p.Files {
		fmt.Fprintf(&b, "  %10d  %s\n", f.Size, f.Path)
	}
	fmt.Fprintf(&b, "digest %s\n", p.Digest())
	return b.String()
}

func role(m Member) string {
	if m.IsLearner {
		return "learner"
	}
	return "voter"
}

func fromEtcd(m *membership.Member) Member {
	return Member{
		ID:         m.ID,
		Name:       m.Name,
		PeerURLs:   slices.Clone(m.PeerURLs),
		ClientURLs: slices.Clone(m.ClientURLs),
		IsLearner:  m.IsLearner,
	}
}

func names(members []*membership.Member) string {
	list := make([]string, 0, len(members))
	for _, m := range members {
		list = append(list, m.Name)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
