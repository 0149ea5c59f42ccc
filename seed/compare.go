package seed

import (
	"net"
	"net/url"
	"slices"
)

// Comparison is a stored member beside a plan.
type Comparison struct {
	// SameMember: the stored entry of this very member carries the peer URLs
	// that the plan gives it. It alone decides whether the data may be used.
	SameMember bool
	// StoredSelf is the stored entry; only its ID is set where the members
	// bucket has none (a joiner that has not caught up, a removed member).
	StoredSelf Member
	// Wanted is the plan's own member.
	Wanted Member
	// TokenDiffers: the directory was seeded with another token, as its record says.
	TokenDiffers bool
	// SelfRemoved: the stored set lists this very member as removed.
	SelfRemoved bool
	// Added are the plan's members that are not stored, Removed the stored ones
	// that the plan lacks; by their peer URLs, since names may differ.
	Added, Removed []Member
}

// Compare sets a stored member beside a plan. It reads nothing.
func (s *State) Compare(p *Plan) Comparison {
	c := Comparison{
		StoredSelf:   Member{ID: s.MemberID},
		Wanted:       p.Self,
		TokenDiffers: s.Record != nil && s.Record.Token != p.Token,
		SelfRemoved:  slices.Contains(s.Removed, s.MemberID),
	}
	if s.Self != nil {
		c.StoredSelf = *s.Self
	}
	c.SameMember = s.Self != nil && sameURLs(s.Self.PeerURLs, p.Self.PeerURLs) && !c.SelfRemoved
	c.Added = missing(p.Members, s.Members)
	c.Removed = missing(s.Members, p.Members)
	return c
}

// missing lists the members of from that no member of in has the peer URLs of.
func missing(from, in []Member) []Member {
	var list []Member
	for _, m := range from {
		if !slices.ContainsFunc(in, func(o Member) bool { return sameURLs(o.PeerURLs, m.PeerURLs) }) {
			list = append(list, m)
		}
	}
	return list
}

func sameURLs(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// packageDefault recognises the cluster that a distribution's package starts when
// it is installed: one member, and nobody but this host can reach it.
func packageDefault(members []Member) bool {
	if len(members) != 1 || len(members[0].PeerURLs) == 0 {
		return false
	}
	for _, text := range slices.Concat(members[0].PeerURLs, members[0].ClientURLs) {
		u, err := url.Parse(text)
		if err != nil {
			return false
		}
		ip := net.ParseIP(u.Hostname())
		if u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return false
		}
	}
	return true
}
