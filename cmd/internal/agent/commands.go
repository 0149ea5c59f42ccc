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

// addition is member add as a learner, a first start, and the promotion. etcd
// refuses the add for some seconds after a change, and the promotion until the
// learner has caught up.
func (a *agent) addition(peers []rendezvous.PeerView) []string {
	self := a.plan.Self
	urls := strings.Join(self.PeerURLs, ",")
	var cluster []string
	for i := range peers {
		for _, l := range peers[i].Last.Members {
			if slices.Equal(l.PeerURLs, self.PeerURLs) || l.Name == "" {
				continue
			}
			for _, u := range l.PeerURLs {
				if entry := l.Name + "=" + u; !slices.Contains(cluster, entry) {
					cluster = append(cluster, entry)
				}
			}
		}
	}
	for _, u := range self.PeerURLs {
		cluster = append(cluster, self.Name+"="+u)
	}
	ctl := a.etcdctl(peers)
	return []string{
		"until " + ctl + " member add " + self.Name + " --learner --peer-urls=" + urls + "; do sleep 2; done",
		a.firstStart(strings.Join(cluster, ",")),
		"until " + ctl + " member promote $(" + ctl + " member list | grep -F " + urls + " | cut -d, -f1); do sleep 2; done",
	}
}

// firstStart is the command line of an etcd that joins a running cluster, with
// the settings of this node's configuration.
func (a *agent) firstStart(cluster string) string {
	self := a.plan.Self
	args := []string{
		"etcd", "--name=" + self.Name, "--data-dir=" + a.Etcd.DataDir,
		"--initial-cluster-state=existing", "--initial-cluster=" + cluster,
		"--initial-advertise-peer-urls=" + strings.Join(self.PeerURLs, ","),
		"--listen-peer-urls=" + strings.Join(a.Etcd.ListenPeerURLs, ","),
		"--listen-client-urls=" + strings.Join(a.Etcd.ListenClientURLs, ","),
		"--advertise-client-urls=" + strings.Join(self.ClientURLs, ","),
	}
	if a.Etcd.WALDir != "" {
		args = append(args, "--wal-dir="+a.Etcd.WALDir)
	}
	for _, side := range []struct {
		prefix string
		tls    struct{ cert, key, ca string }
		auth   bool
	}{
		{"peer-", struct{ cert, key, ca string }{a.Etcd.PeerTLS.CertFile, a.Etcd.PeerTLS.KeyFile, a.Etcd.PeerTLS.TrustedCAFile}, a.Etcd.PeerTLS.ClientCertAuth},
		{"", struct{ cert, key, ca string }{a.Etcd.ClientTLS.CertFile, a.Etcd.ClientTLS.KeyFile, a.Etcd.ClientTLS.TrustedCAFile}, a.Etcd.ClientTLS.ClientCertAuth},
	} {
		if side.tls.cert == "" {
			continue
		}
		args = append(args, "--"+side.prefix+"cert-file="+side.tls.cert, "--"+side.prefix+"key-file="+side.tls.key)
		if side.tls.ca != "" {
			args = append(args, "--"+side.prefix+"trusted-ca-file="+side.tls.ca)
		}
		if side.auth {
			args = append(args, "--"+side.prefix+"client-cert-auth")
		}
	}
	return strings.Join(args, " ") + " &"
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
