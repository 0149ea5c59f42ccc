package etcdconf

import (
	"fmt"
	"strings"
)

// Stored is what a data directory that etcd already owns says of its member.
type Stored struct {
	Name     string
	PeerURLs []string
	Members  []Peer
	// MemberID is stored; ComputedID is what the stored peer URLs and this
	// configuration's token give. Where either is not known it is "": the ID of
	// a member that was added at run time follows from no configuration.
	MemberID, ComputedID string
}

// Difference is a configured value that etcd does not look at any more, since
// its data directory says otherwise.
type Difference struct {
	Key        string `json:"key"`
	Place      string `json:"place"`
	Configured string `json:"configured"`
	Stored     string `json:"stored"`
}

// String is the warning for it.
func (d Difference) String() string {
	return fmt.Sprintf("%s is %q, but the data directory has %s: the stored value is used", d.Place, d.Configured, d.Stored)
}

// Differences lists what this configuration says otherwise than the data
// directory. Absent keys differ from nothing. Client URLs are no part of it: etcd
// publishes those that it is started with.
func (c *Config) Differences(s Stored) []Difference {
	var all []Difference
	add := func(flag, configured, stored string) {
		all = append(all, Difference{flag, c.place(flag), configured, stored})
	}
	if c.Name != "" && c.Name != s.Name {
		add("name", c.Name, fmt.Sprintf("%q", s.Name))
	}
	for _, u := range []struct {
		flag       string
		have, want []string
	}{
		{"initial-advertise-peer-urls", c.AdvertisePeerURLs, s.PeerURLs},
	} {
		if len(u.have) > 0 && len(u.want) > 0 && !sameURLs(u.have, u.want) {
			add(u.flag, strings.Join(u.have, ","), fmt.Sprintf("%q", strings.Join(u.want, ",")))
		}
	}
	if s.MemberID != "" && s.ComputedID != "" && s.MemberID != s.ComputedID {
		add("initial-cluster-token", c.Token(), "member ID "+s.MemberID+", which follows from another token (this one gives "+s.ComputedID+")")
	}
	if members, err := c.InitialMembers(); err == nil && len(members) > 0 && len(s.Members) > 0 && !samePeers(members, s.Members) {
		add("initial-cluster", c.InitialCluster, describePeers(s.Members))
	}
	return all
}

func samePeers(a, b []Peer) bool {
	return strings.Join(peerURLs(a), " ") == strings.Join(peerURLs(b), " ")
}

func describePeers(peers []Peer) string {
	return fmt.Sprintf("%d members (%s)", len(peers), strings.Join(peerURLs(peers), " "))
}
