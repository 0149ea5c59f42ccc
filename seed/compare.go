package seed

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// Comparison is a stored member beside a plan.
type Comparison struct {
	// SameMember: the stored entry of this very member carries the peer URLs
	// that the plan gives it, in whatever spelling, and perhaps more: a member's
	// URLs are nobody else's. It alone decides whether the data may be used.
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
	c.SameMember = s.Self != nil && carries(s.Self.PeerURLs, p.Self.PeerURLs) && !c.SelfRemoved
	c.Added = missing(p.Members, s.Members)
	c.Removed = missing(s.Members, p.Members)
	return c
}

// missing lists the members of from that no member of in has the peer URLs of.
func missing(from, in []Member) []Member {
	var list []Member
	for _, m := range from {
		if !slices.ContainsFunc(in, func(o Member) bool { return carries(o.PeerURLs, m.PeerURLs) || carries(m.PeerURLs, o.PeerURLs) }) {
			list = append(list, m)
		}
	}
	return list
}

// carries tells whether all has every one of some.
func carries(all, some []string) bool {
	for _, u := range some {
		if !slices.ContainsFunc(all, func(v string) bool { return canonical(v) == canonical(u) }) {
			return false
		}
	}
	return len(some) > 0
}

// canonical is a URL in the one spelling that equal ones share.
func canonical(text string) string {
	u, err := url.Parse(strings.TrimSpace(text))
	if err != nil || u.Port() == "" {
		return text
	}
	return strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(hosturl.Canonical(u.Hostname()), u.Port())
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
