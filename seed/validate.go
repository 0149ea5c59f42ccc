package seed

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/etcdinit/etcdinit/internal/hosturl"
)

// defaultMaxLearners is etcd's own default of max-learners.
const defaultMaxLearners = 1

// buildMembers turns a spec's members into etcd's, ascending by ID, or says what
// is wrong with the first one that cannot be.
func buildMembers(spec Spec) ([]*membership.Member, error) {
	if len(spec.Members) == 0 {
		return nil, invalid("no members to seed")
	}
	members := make([]*membership.Member, 0, len(spec.Members))
	byName, byURL, byID := map[string]bool{}, map[string]string{}, map[types.ID]string{}
	learners := 0
	for _, m := range spec.Members {
		built, err := buildMember(m, spec.Token)
		if err != nil {
			return nil, err
		}
		if byName[m.Name] {
			return nil, invalid("two members are named %q", m.Name)
		}
		byName[m.Name] = true
		for _, u := range built.PeerURLs {
			if other, ok := byURL[u]; ok {
				return nil, invalid("members %q and %q have the same peer URL %s", other, m.Name, u)
			}
			byURL[u] = m.Name
		}
		if other, ok := byID[built.ID]; ok {
			return nil, invalid("members %q and %q have the same ID %s: peer URLs and token %q are hashed to it", other, m.Name, built.ID, spec.Token)
		}
		byID[built.ID] = m.Name
		if built.ID == 0 {
			return nil, invalid("member %q: its ID is 0, which etcd forbids: change the token %q", m.Name, spec.Token)
		}
		if built.IsLearner {
			learners++
		}
		members = append(members, built)
	}
	limit := spec.MaxLearners
	if limit == 0 {
		limit = defaultMaxLearners
	}
	switch {
	case learners > limit:
		return nil, invalid("%d learners, but etcd's max-learners is %d: etcd would not start", learners, limit)
	case learners == len(members):
		return nil, invalid("all %d members are learners: nobody could be elected", learners)
	}
	slices.SortFunc(members, func(a, b *membership.Member) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return members, nil
}

func buildMember(m Member, token string) (*membership.Member, error) {
	if m.Name == "" {
		return nil, invalid("a member with peer URLs %s has no name", strings.Join(m.PeerURLs, ","))
	}
	if strings.ContainsFunc(m.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, invalid("member name %q has characters that cannot be printed", m.Name)
	}
	peers, err := parseURLs(m.PeerURLs)
	if err != nil {
		return nil, invalid("member %q: peer URLs: %v", m.Name, err)
	}
	build := membership.NewMember
	if m.IsLearner {
		build = membership.NewMemberAsLearner
	}
	built := build(m.Name, peers, token, nil)
	if len(m.ClientURLs) > 0 {
		clients, err := parseURLs(m.ClientURLs)
		if err != nil {
			return nil, invalid("member %q: client URLs: %v", m.Name, err)
		}
		built.ClientURLs = clients.StringSlice()
	}
	return built, nil
}

// parseURLs is etcd's own parser behind the checks that etcd leaves out: the text
// of a URL is hashed to the member's ID, so only one spelling may pass.
func parseURLs(list []string) (types.URLs, error) {
	for _, text := range list {
		if err := checkURL(text); err != nil {
			return nil, err
		}
	}
	urls, err := types.NewURLs(list)
	if err != nil {
		return nil, err
	}
	texts := urls.StringSlice()
	for i := 1; i < len(texts); i++ {
		if texts[i] == texts[i-1] {
			return nil, fmt.Errorf("%s is listed twice", texts[i])
		}
	}
	return urls, nil
}

func checkURL(text string) error {
	if scheme, _, _ := strings.Cut(text, "://"); scheme == "unix" || scheme == "unixs" {
		return nil
	}
	u, err := hosturl.Parse(text)
	if err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	given, _ := hosturl.Split(text)
	switch {
	case strings.HasSuffix(given.Host, "."):
		return fmt.Errorf("%s: host %s ends in a dot", text, given.Host)
	case given.Host != strings.ToLower(given.Host):
		return fmt.Errorf("%s: host %s is not in lower case", text, given.Host)
	case given.Host != u.Host:
		return fmt.Errorf("%s: address %s is written %s", text, given.Host, u.Host)
	case u.String() != text:
		return fmt.Errorf("%s: is written %s", text, u)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &Error{Kind: Invalid, Msg: fmt.Sprintf(format, args...)}
}
