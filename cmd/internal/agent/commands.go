package agent

import (
	"slices"
	"strconv"
	"strings"

	"github.com/etcdinit/etcdinit/cmd/internal/rendezvous"
)

// etcdctl is the command with endpoints and certificates that this node knows.
func (a *agent) etcdctl(peers []rendezvous.PeerView) string {
	var endpoints []string
	for i := range peers {
		for _, l := range peers[i].Last.Members {
			for _, u := range l.ClientURLs {
				if !slices.Contains(endpoints, u) && !slices.Equal(l.PeerURLs, a.plan.Self.PeerURLs) {
					endpoints = append(endpoints, u)
				}
			}
		}
	}
	if len(endpoints) == 0 { // it has not published them: the port that this node's own configuration gives
		for i := range peers {
			endpoints = append(endpoints, a.clientURLs(hostOf(&peers[i]))...)
		}
	}
	return a.etcdctlAt(endpoints)
}

// etcdctlAt is the command for some client URLs.
func (a *agent) etcdctlAt(endpoints []string) string {
	cmd := "etcdctl --endpoints=" + strings.Join(endpoints, ",")
	if t := a.Etcd.ClientTLS; t.CertFile != "" {
		if t.TrustedCAFile != "" {
			cmd += " --cacert=" + t.TrustedCAFile
		}
		cmd += " --cert=" + t.CertFile + " --key=" + t.KeyFile
	}
	return cmd
}

// aside moves a seed out of etcd's way: an etcd that finds it starts from it,
// whatever its flags say. The log does not stay in the wal-dir, which etcd empties
// when it makes a new one.
func (a *agent) aside(suffix string) []string {
	dir := a.state.DataDir
	list := []string{"mv " + dir + "/member " + dir + "/member." + suffix}
	if wal := a.Etcd.WALDir; wal != "" {
		list = append(list, "mv "+wal+"/*.wal "+dir+"/member."+suffix+"/")
	}
	return list
}

// entry brings this node into a running cluster: in place of the entry that has its
// URLs, if there is one.
func (a *agent) entry(peers []rendezvous.PeerView) []string {
	for i := range peers {
		list := peers[i].Last.Members
		if len(list) > 0 && !slices.ContainsFunc(list, func(l rendezvous.Listed) bool { return slices.Equal(l.PeerURLs, a.plan.Self.PeerURLs) }) {
			return a.addition(peers)
		}
	}
	return a.replacement(peers)
}

// replacement is member remove, which etcd refuses for some seconds after a
// change, then what addition says: of the entry that has
// this node's URLs.
func (a *agent) replacement(peers []rendezvous.PeerView) []string {
	id := a.plan.MemberID.String()
	for i := range peers {
		for _, l := range peers[i].Last.Members {
			if slices.Equal(l.PeerURLs, a.plan.Self.PeerURLs) {
				id = string(l.ID)
			}
		}
	}
	return append([]string{"until " + a.etcdctl(peers) + " member remove " + id + "; do sleep 2; done"}, a.addition(peers)...)
}

// addition is member add as a learner, a start of the same service, which takes it
// up, and the promotion. etcd refuses the add for some seconds after a change.
func (a *agent) addition(peers []rendezvous.PeerView) []string {
	self := a.plan.Self
	urls := strings.Join(self.PeerURLs, ",")
	ctl := a.etcdctl(peers)
	list := append([]string{"until " + ctl + " member add " + self.Name + " --learner --peer-urls=" + urls + "; do sleep 2; done"}, a.Again...)
	if a.Pod { // its container is started again by itself, and has no shell
		return append(list, "until "+ctl+" member promote $("+ctl+" member list | grep -F "+urls+" | cut -d, -f1); do sleep 2; done")
	}
	promote := "etcdinit promote --wait"
	if a.Etcd.File != "" {
		return append(list, promote+" --config-file "+a.Etcd.File)
	}
	promote += " --data-dir " + a.Etcd.DataDir
	if a.Etcd.WALDir != "" {
		promote += " --wal-dir " + a.Etcd.WALDir
	}
	return append(list, promote)
}

// withdrawal is the way out of a roster that cannot be completed.
func (a *agent) withdrawal() []string {
	cmd := "etcdinit withdraw"
	if a.Etcd.File != "" {
		cmd += " --config-file " + a.Etcd.File
	} else {
		cmd += " --data-dir " + a.Etcd.DataDir + " --listen-peer-urls " + strings.Join(a.Etcd.ListenPeerURLs, ",")
		if a.Etcd.WALDir != "" {
			cmd += " --wal-dir " + a.Etcd.WALDir
		}
		if !a.Etcd.TokenIsDefault() {
			cmd += " --initial-cluster-token " + a.Etcd.Token()
		}
	}
	if a.Etcd.File == "" || a.Etcd.DiscoverySRV == "" {
		cmd += " --discovery '" + a.Source + "'"
	}
	if a.Size > 0 {
		cmd += " --size " + strconv.Itoa(a.Size)
	}
	if a.SelfIP.IsValid() {
		cmd += " --self-ip " + a.SelfIP.String()
	}
	if a.SelfName != "" {
		cmd += " --self-name " + a.SelfName
	}
	return []string{cmd}
}
