package raftlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// headLimit bounds what Inspect reads of the first segment.
const headLimit = 1 << 20

// Log is what a write-ahead log says.
type Log struct {
	Identity
	// FirstIndex is the index that the oldest segment is named after.
	FirstIndex uint64
	// Pristine: the log is exactly what Write makes: no etcd has voted on it.
	Pristine bool
	// Bare: the log is exactly what WriteEmpty makes: a joiner's, on which no etcd
	// has accepted anything.
	Bare bool
	// Fed: the log is exactly what WriteFrom makes: no etcd has accepted anything on it.
	Fed bool
	// Bootstrap holds the members of the log's first configuration changes.
	Bootstrap []*membership.Member
	// Whole: every record was read, so that Last and Commit are the log's own.
	Whole  bool
	Last   uint64 // index of the last entry or snapshot record
	Commit uint64
	Vote   types.ID
	Term   uint64
	// Snapshots are the snapshot records that the log's commit index covers,
	// as "term-index" in the form of a snapshot file's name (Check only).
	Snapshots []string
	// Members and Removed are what the committed entries make (Replay only).
	Members []*membership.Member
	Removed []types.ID
}

// ParseName splits a segment's name; ok is false where it is none.
func ParseName(name string) (seq, index uint64, ok bool) {
	base, found := strings.CutSuffix(name, ".wal")
	if !found || len(base) != 33 || base[16] != '-' {
		return 0, 0, false
	}
	seq, err1 := strconv.ParseUint(base[:16], 16, 64)
	index, err2 := strconv.ParseUint(base[17:], 16, 64)
	return seq, index, err1 == nil && err2 == nil && base == strings.ToLower(base)
}

// Inspect reads the head of every segment, and a short log whole. names are the
// segments of dir in ascending order, at least one.
func Inspect(dir string, names []string) (*Log, error) {
	l, err := newLog(dir, names)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if err := l.head(filepath.Join(dir, name), i == 0, len(names) == 1); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// Check reads every record of every segment.
func Check(dir string, names []string) (*Log, error) {
	l, err := newLog(dir, names)
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if err := l.head(filepath.Join(dir, name), i == 0, len(names) == 1); err != nil {
			return nil, err
		}
	}
	if err := l.body(dir, names, nil); err != nil {
		return nil, err
	}
	return l, nil
}

// Identify reads the head of the newest segment only: an etcd may be writing to it.
func Identify(dir string, names []string) (Identity, error) {
	if _, err := newLog(dir, names); err != nil {
		return Identity{}, err
	}
	path := filepath.Join(dir, names[len(names)-1])
	f, err := os.Open(path) //nolint:gosec // the operator names the directory
	if err != nil {
		return Identity{}, err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	l := &Log{}
	err = l.header(wal.NewDecoder(fileutil.NewFileReader(f)), path, true)
	return l.Identity, err
}

func newLog(dir string, names []string) (*Log, error) {
	l := &Log{}
	var lastSeq, lastIndex uint64
	for i, name := range names {
		seq, index, ok := ParseName(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("%s: not the name of a WAL segment", filepath.Join(dir, name))
		case i == 0:
			l.FirstIndex = index
		case seq != lastSeq+1:
			return nil, fmt.Errorf("%s: segment %d follows segment %d: one is missing", filepath.Join(dir, name), seq, lastSeq)
		case index < lastIndex:
			return nil, fmt.Errorf("%s: begins at index %d, the segment before it at %d", filepath.Join(dir, name), index, lastIndex)
		}
		lastSeq, lastIndex = seq, index
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: no WAL segment", dir)
	}
	return l, nil
}

// head reads a segment's checksum and metadata records; of the first segment
// also what follows, up to headLimit.
func (l *Log) head(path string, first, only bool) (err error) {
	f, err := os.Open(path) //nolint:gosec // the operator names the directory
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	dec := wal.NewDecoder(fileutil.NewFileReader(f))
	if err := l.header(dec, path, first); err != nil {
		return err
	}
	if first {
		return l.follow(dec, path, only)
	}
	return nil
}

func (l *Log) header(dec wal.Decoder, path string, first bool) error {
	rec := &walpb.Record{}
	if err := dec.Decode(rec); err != nil {
		return fmt.Errorf("%s: no checksum record at offset 0: %w", path, err)
	}
	if rec.GetType() != wal.CrcType {
		return fmt.Errorf("%s: record of type %d at offset 0, want the checksum record", path, rec.GetType())
	}
	dec.UpdateCRC(rec.GetCrc())
	at := dec.LastOffset()
	if err := dec.Decode(rec); err != nil {
		return fmt.Errorf("%s: no metadata record at offset %d: %w", path, at, err)
	}
	if rec.GetType() != wal.MetadataType {
		return fmt.Errorf("%s: record of type %d at offset %d, want the metadata record", path, rec.GetType(), at)
	}
	var meta etcdserverpb.Metadata
	if err := proto.Unmarshal(rec.GetData(), &meta); err != nil {
		return fmt.Errorf("%s: metadata record at offset %d: %w", path, at, err)
	}
	id := Identity{Member: types.ID(meta.GetNodeID()), Cluster: types.ID(meta.GetClusterID())}
	switch {
	case id.Member == 0:
		return fmt.Errorf("%s: the metadata record names no member", path)
	case first:
		l.Identity = id
	case id != l.Identity:
		return fmt.Errorf("%s: belongs to member %s of cluster %s, the first segment to %s of %s",
			path, id.Member, id.Cluster, l.Member, l.Cluster)
	}
	return nil
}

// follow reads on from behind the metadata record. A damaged record is an error
// only where etcd would not repair it: a torn last record is cut off by etcd.
func (l *Log) follow(dec wal.Decoder, path string, only bool) error {
	var t track
	rec := &walpb.Record{}
	for dec.LastOffset() < headLimit {
		err := dec.Decode(rec)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			if only {
				l.Whole = true
				t.finish(l)
				untouched := l.FirstIndex == 0 && errors.Is(err, io.EOF)
				l.Pristine, l.Bare, l.Fed = untouched && t.pristine(), untouched && t.bare(), untouched && t.fed()
			}
			break
		}
		if err != nil {
			return fmt.Errorf("%s: at offset %d: %w", path, dec.LastOffset(), err)
		}
		if err := t.add(rec); err != nil {
			return fmt.Errorf("%s: record before offset %d: %w", path, dec.LastOffset(), err)
		}
	}
	l.Bootstrap = t.bootstrap
	return nil
}

func (l *Log) body(dir string, names []string, replayed *replay) (err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	readers := make([]fileutil.FileReader, 0, len(names))
	for _, name := range names {
		f, oerr := os.Open(filepath.Join(dir, name)) //nolint:gosec // the operator names the directory
		if oerr != nil {
			return oerr
		}
		files = append(files, f)
		readers = append(readers, fileutil.NewFileReader(f))
	}
	t := track{replay: replayed}
	dec := wal.NewDecoder(readers...)
	rec := &walpb.Record{}
	for {
		err := dec.Decode(rec)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		if rec.GetType() == wal.CrcType {
			if crc := dec.LastCRC(); crc != 0 && rec.Validate(crc) != nil {
				return fmt.Errorf("%s: a segment's checksum does not continue the one before it", dir)
			}
			dec.UpdateCRC(rec.GetCrc())
			continue
		}
		if err := t.add(rec); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	l.Whole = true
	t.finish(l)
	return nil
}

// track follows the records of a log.
type track struct {
	records   int
	entries   uint64
	last      uint64
	seen      bool // an entry or a snapshot record has set last
	state     *raftpb.HardState
	states    int
	snapshots []*walpb.Snapshot
	bootstrap []*membership.Member
	other     bool // anything but a bootstrap's records
	replay    *replay
}

func (t *track) add(rec *walpb.Record) error {
	t.records++
	switch rec.GetType() {
	case wal.EntryType:
		var e raftpb.Entry
		if err := proto.Unmarshal(rec.GetData(), &e); err != nil {
			return fmt.Errorf("entry: %w", err)
		}
		if t.seen && e.GetIndex() > t.last+1 {
			return fmt.Errorf("entry %d follows entry %d", e.GetIndex(), t.last)
		}
		t.last, t.seen = e.GetIndex(), true
		t.entries++
		t.configuration(&e)
		if t.replay != nil {
			t.replay.add(&e)
		}
	case wal.StateType:
		var s raftpb.HardState
		if err := proto.Unmarshal(rec.GetData(), &s); err != nil {
			return fmt.Errorf("state: %w", err)
		}
		t.state = &s
		t.states++
	case wal.SnapshotType:
		var s walpb.Snapshot
		if err := proto.Unmarshal(rec.GetData(), &s); err != nil {
			return fmt.Errorf("snapshot: %w", err)
		}
		t.snapshots = append(t.snapshots, &s)
		if s.GetIndex() > t.last || !t.seen {
			t.last, t.seen = s.GetIndex(), true
		}
	case wal.MetadataType, wal.CrcType:
	default:
		return fmt.Errorf("unknown record type %d", rec.GetType())
	}
	return nil
}

// configuration keeps the members that a bootstrap begins with.
func (t *track) configuration(e *raftpb.Entry) {
	if e.GetTerm() != 1 || e.GetType() != raftpb.EntryConfChange || e.GetIndex() != uint64(len(t.bootstrap)+1) || t.states > 0 {
		t.other = true
		return
	}
	var cc raftpb.ConfChange
	var m membership.Member
	if proto.Unmarshal(e.GetData(), &cc) != nil || json.Unmarshal(cc.GetContext(), &m) != nil || uint64(m.ID) != cc.GetNodeId() {
		t.other = true
		return
	}
	t.bootstrap = append(t.bootstrap, &m)
}

func (t *track) pristine() bool {
	return !t.other && len(t.bootstrap) > 0 && t.begins() &&
		t.states == 1 && t.state.GetTerm() == 1 && t.state.GetVote() == 0 &&
		t.state.GetCommit() == t.entries && t.last == t.entries
}

// begins: the log has the empty snapshot at its head, and what WriteBehind adds.
func (t *track) begins() bool {
	switch len(t.snapshots) {
	case 1:
		return t.snapshots[0].GetIndex() == 0
	case 2:
		return t.snapshots[0].GetIndex() == 0 && t.snapshots[1].GetIndex() == t.entries && t.snapshots[1].GetTerm() == 1
	}
	return false
}

func (t *track) fed() bool {
	return t.entries == 0 && !t.other && t.states == 1 && t.state.GetVote() == 0 && len(t.snapshots) == 2 && t.snapshots[0].GetIndex() == 0 &&
		t.snapshots[1].GetIndex() == t.state.GetCommit() && t.snapshots[1].GetTerm() == t.state.GetTerm()
}

func (t *track) bare() bool {
	return t.records == 1 && len(t.snapshots) == 1 && t.snapshots[0].GetIndex() == 0
}

func (t *track) finish(l *Log) {
	l.Last = t.last
	l.Commit, l.Term, l.Vote = t.state.GetCommit(), t.state.GetTerm(), types.ID(t.state.GetVote())
	for _, s := range t.snapshots {
		if s.GetIndex() > 0 && s.GetIndex() <= l.Commit {
			l.Snapshots = append(l.Snapshots, fmt.Sprintf("%016x-%016x", s.GetTerm(), s.GetIndex()))
		}
	}
}
