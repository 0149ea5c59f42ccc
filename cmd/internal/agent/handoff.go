package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdinit/etcdinit/cmd/internal/etcdconf"
	"github.com/etcdinit/etcdinit/cmd/internal/exit"
	"github.com/etcdinit/etcdinit/internal/access"
	"github.com/etcdinit/etcdinit/internal/hosturl"
	"github.com/etcdinit/etcdinit/seed"
)

// result ends a run that was not refused: the handoff is written, unless it is a
// dry run.
func (a *agent) result() (*Result, error) {
	if !a.met.IsZero() {
		a.spans = append(a.spans, Span{Step: "rendezvous", Start: a.met, Ms: float64(time.Since(a.met).Microseconds()) / 1000})
	}
	r := a.outcome()
	if !a.dry {
		a.restored()
		if len(a.state.Staged) > 0 {
			if _, err := seed.Unstage(a.Etcd.DataDir, a.Etcd.WALDir); err != nil {
				a.warn("what is left of the snapshot stays: " + err.Error())
			}
		}
		if err := a.handOver(r); err != nil {
			return r, err
		}
	}
	r.Warnings, r.Spans = a.warnings, a.spans
	return r, nil
}

// outcome says what became of the directory, from what it holds or, on a dry run,
// from the plan.
func (a *agent) outcome() *Result {
	s := a.state
	r := &Result{Action: Kept, DataDir: a.Etcd.DataDir, WALDir: a.Etcd.WALDir, DiskID: s.DiskID}
	switch {
	case a.foreseen != "":
		r.Action = a.foreseen
	case a.seeded:
		r.Action = Seeded
	}
	if s.Kind != seed.Valid {
		r.Plan, r.MemberID, r.Name, r.Members = a.plan, a.plan.MemberID.String(), a.plan.Self.Name, a.plan.Members
		if a.Quorum == QuorumNone {
			r.ClusterID = a.plan.ClusterID.String()
		}
		r.Message = string(r.Action) + " " + r.Name + " (ID " + r.MemberID + ") in " + r.DataDir
		if a.foreseen == WouldWait {
			r.Message = "would wait: " + a.remark
		}
		return r
	}
	if s.Record != nil {
		r.DiskID, r.Restored = s.Record.DiskID, s.Record.Restored
	}
	r.ClusterID, r.MemberID, r.Name, r.Members = s.ClusterID.String(), s.MemberID.String(), s.Self.Name, s.Members
	r.Learner = s.Self.IsLearner
	r.Message = string(r.Action) + " " + r.Name + " (ID " + r.MemberID + ") of cluster " + r.ClusterID + " in " + r.DataDir
	switch {
	case a.foreseen == WouldWait:
		r.Message = "would wait: " + a.remark
	case !a.seeded:
		r.Message = "already initialised as " + describe(s.Self.Name, s.MemberID) + " of cluster " + r.ClusterID + a.remark
		if s.Self.IsLearner {
			r.Message += ", a learner"
		}
		a.Log.Info(r.Message, zap.String("member_id", r.MemberID), zap.String("cluster_id", r.ClusterID), zap.String("dir", s.DataDir))
	}
	return r
}

// handOver writes what etcd must still be told, from the members bucket. A mark
// on a directory on which an etcd has run is removed before.
func (a *agent) handOver(r *Result) error {
	if a.disk == DiskUsed {
		a.warn(a.state.DataDir + " was not released, yet an etcd has run on it: is etcd started before this program is done? It is kept")
		if err := seed.Release(a.state); err != nil {
			return err
		}
	}
	r.Handoff = a.handoffOf()
	if a.EnvFile != "" {
		if err := writeFile(a.EnvFile, etcdconf.EnvFile(r.Handoff), 0o644); err != nil {
			return &exit.Error{Status: exit.Write, Reason: "handoff", Msg: "write the handoff (--env-file)", Err: err}
		}
		r.EnvFile = a.EnvFile
	}
	if a.ConfigOut != "" {
		data, err := a.Etcd.Resolved(r.Handoff)
		if err != nil {
			return err
		}
		if err := writeFile(a.ConfigOut, data, a.modeOfConfig()); err != nil {
			return &exit.Error{Status: exit.Write, Reason: "handoff", Msg: "write the resolved configuration (--config-out)", Err: err}
		}
		r.ConfigOut = a.ConfigOut
	}
	return nil
}

func (a *agent) handoffOf() Handoff {
	self := a.state.Self
	h := Handoff{Name: self.Name, AdvertisePeerURLs: self.PeerURLs}
	host := ""
	if len(self.PeerURLs) > 0 {
		host = hosturl.Host(self.PeerURLs[0])
	}
	h.AdvertiseClientURLs = a.advertised(host)
	if a.ListenSelf {
		addr := a.narrowest(host)
		if !addr.IsValid() {
			a.warn("--listen-self: this member's address is not known (without discovery, give --self-ip) or is not this host's (NAT): the listen URLs stay as they are")
			return h
		}
		h.ListenPeerURLs = etcdconf.ListenSelf(a.Etcd.ListenPeerURLs, addr)
		h.ListenClientURLs = etcdconf.ListenSelf(a.Etcd.ListenClientURLs, addr)
	}
	return h
}

// narrowest returns the address that --listen-self binds to: the one that made
// the match, or the one given, or the IP of the peer URL itself; none where this
// host does not have it, as behind NAT.
func (a *agent) narrowest(host string) netip.Addr {
	addr := a.SelfIP
	if a.found != nil && a.found.Addr.IsValid() {
		addr = a.found.Addr
	}
	if !addr.IsValid() {
		var err error
		if addr, err = netip.ParseAddr(host); err != nil {
			return netip.Addr{}
		}
	}
	if local, err := a.localAddrs(""); err == nil && !addr.IsLoopback() && !slices.Contains(local, addr) {
		return netip.Addr{}
	}
	return addr
}

// advertised are the client URLs that etcd is started with. They are no identity:
// what the configuration says comes first, then what discovery says now, or, where it
// is silent, the stored ones as far as they fit what etcd listens on now.
func (a *agent) advertised(host string) []string {
	if len(a.Etcd.AdvertiseClients) > 0 {
		return a.Etcd.AdvertiseClients
	}
	if a.found != nil && a.found.Self >= 0 && len(a.found.Peer().ClientURLs) > 0 {
		return a.found.Peer().ClientURLs
	}
	now := a.clientURLs(host)
	if stored := a.state.Self.ClientURLs; len(stored) > 0 && (len(now) == 0 || a.fits(stored, host)) {
		return stored
	}
	return now
}

// fits tells whether stored client URLs can be those of what etcd listens on now: by
// their scheme, and by their port where they have the member's own host. Of another
// host, a port may be mapped.
func (a *agent) fits(stored []string, host string) bool {
	for _, u := range stored {
		if !slices.ContainsFunc(a.Etcd.ClientListeners(), func(l etcdconf.Listener) bool {
			return !l.Unix() && strings.HasPrefix(u, l.Scheme+"://") && (hosturl.Host(u) != host || strings.HasSuffix(u, ":"+strconv.Itoa(int(l.Port))))
		}) {
			return false
		}
	}
	return true
}

func (a *agent) clientURLs(host string) []string {
	if len(a.Etcd.AdvertiseClients) > 0 {
		return a.Etcd.AdvertiseClients
	}
	var urls []string
	for _, l := range a.Etcd.ClientListeners() {
		if l.Unix() {
			continue
		}
		urls = append(urls, l.URL(host))
	}
	return urls
}

// differences reports every difference between the data and the records that is
// no reason to refuse: a running cluster owns its membership.
func (a *agent) differences(c seed.Comparison, plan *seed.Plan) {
	self := a.state.Self
	if self.Name != c.Wanted.Name && (a.Etcd.Name == "" || a.Etcd.Name == self.Name) {
		a.warn(fmt.Sprintf("the records call this member %s, its data call it %s: the stored name is used", c.Wanted.Name, self.Name))
	}
	if self.IsLearner {
		return
	}
	if len(c.Added)+len(c.Removed) > 0 {
		a.warn(fmt.Sprintf("stored %d members, discovered %d: %s; the stored value is used, a running cluster changes its members by member add (--learner) and member remove",
			len(a.state.Members), len(plan.Members), memberDiff(c)))
		return
	}
	stored := etcdconf.Stored{Name: self.Name, PeerURLs: self.PeerURLs, Members: confPeers(a.state.Members)}
	for _, d := range a.Etcd.Differences(stored) {
		a.warn(d.String())
	}
}

// confPeers are members as etcd's initial-cluster would list them.
func confPeers(members []seed.Member) []etcdconf.Peer {
	var peers []etcdconf.Peer
	for _, m := range members {
		peers = append(peers, etcdconf.Peer{Name: m.Name, URLs: m.PeerURLs})
	}
	return peers
}

func memberDiff(c seed.Comparison) string {
	var parts []string
	for _, m := range c.Removed {
		parts = append(parts, "-"+m.Name+"="+strings.Join(m.PeerURLs, ","))
	}
	for _, m := range c.Added {
		parts = append(parts, "+"+m.Name+"="+strings.Join(m.PeerURLs, ","))
	}
	return strings.Join(parts, " ")
}

// modeOfConfig keeps the static configuration's own permissions.
func (a *agent) modeOfConfig() os.FileMode {
	if info, err := os.Stat(a.Etcd.File); a.Etcd.File != "" && err == nil {
		return info.Mode().Perm()
	}
	return 0o644
}

// writeFile makes path hold data, whole or not at all, whatever the umask. A
// symbolic link stays one, and what is no regular file (/dev/stdout, a pipe) is
// written to, never replaced.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := access.Planted(path); err != nil {
		return err
	}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return &os.PathError{Op: "write", Path: path, Err: errors.New("is a directory, want the name of a file")}
	case err == nil && !info.Mode().IsRegular():
		return writeInPlace(path, data)
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // etcd's user reads it
		return err
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// writeInPlace writes to what is there.
func writeInPlace(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0) //nolint:gosec // the path that the operator gave
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// WriteOutput makes a file hold data that all may read, whole or not at all.
func WriteOutput(path string, data []byte) error { return writeFile(path, data, 0o644) }

// WriteReport puts the JSON report where it was asked for. A termination log
// is a file that is mounted in place, so it is written, not renamed. A new one can be
// read by all, whatever the umask.
func WriteReport(path string, data []byte) error {
	err := access.Planted(path)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755) //nolint:gosec // the supervisor reads it
	}
	if err == nil {
		err = writeReport(path, data)
	}
	if err != nil {
		return &exit.Error{Status: exit.Write, Reason: "report", Msg: "write the report (--report)", Err: err}
	}
	return nil
}

func writeReport(path string, data []byte) error {
	_, err := os.Stat(path)
	isNew := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644) //nolint:gosec // the supervisor reads it
	if err != nil {
		return err
	}
	if isNew {
		err = f.Chmod(0o644)
	}
	if err == nil {
		_, err = f.Write(data)
	}
	return errors.Join(err, f.Close())
}
