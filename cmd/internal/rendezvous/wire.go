package rendezvous

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/etcdinit/etcdinit/internal/birth"
)

const (
	// Path is what an agent answers; everything else gets 404, the first edition's
	// path too, so that old agents wait and no mixed birth is possible.
	Path = "/etcdinit/v2/state"
	// Format is the format version of an Answer.
	Format = 2
	// maxAnswer bounds an answer's body.
	maxAnswer = 64 << 10
	// maxText bounds each string of an answer.
	maxText = 512
	// maxMembers bounds a plan.
	maxMembers = 64
)

// Answer is the JSON that an agent answers with.
type Answer struct {
	Format   int    `json:"format"`
	Digest   string `json:"digest"`
	MemberID ID     `json:"memberID"`
	Nonce    string `json:"nonce"` // of this run
	State    State  `json:"state"`
	// Disk is there from Prepared on.
	Disk birth.DiskID `json:"disk,omitempty"`
	// Proposal is there in Prepared, unless a seat is missing.
	Proposal []Seat   `json:"proposal,omitempty"`
	Without  []string `json:"without,omitempty"` // names
	// ClusterID and Roster are there from Committed on.
	ClusterID ID           `json:"clusterID,omitempty"`
	Roster    birth.Roster `json:"roster,omitempty"`
	// Withdrawn are the clusters whose seed was taken back on this disk: it was never
	// released under them, and never will be.
	Withdrawn []ID     `json:"withdrawn,omitempty"`
	Members   []Member `json:"members"` // the plan, only to show a difference
	// Content is what the sender's members are born with, in words: it is part of the
	// digest, and only to show a difference.
	Content string `json:"content,omitempty"`
}

// formatError: the answer is an agent's, of a format this version does not know.
type formatError int

func (e formatError) Error() string {
	return fmt.Sprintf("an etcdinit of format %d answered, this one knows format %d: run the same version on every node", int(e), Format)
}

// parse reads an answer, and believes none of it that is out of bounds.
func parse(r io.Reader) (Answer, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err != nil {
		return Answer{}, fmt.Errorf("answer broken off: %w", err)
	}
	if len(data) > maxAnswer {
		return Answer{}, fmt.Errorf("answer of more than %d bytes", maxAnswer)
	}
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Answer{}, errors.New("answer is not an agent's JSON")
	}
	if head.Format != Format {
		return Answer{}, formatError(head.Format)
	}
	var a Answer
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&a); err != nil {
		return Answer{}, errors.New("answer is not an agent's JSON")
	}
	if dec.More() {
		return Answer{}, errors.New("answer has something after its JSON")
	}
	return a, a.check()
}

// check refuses what no agent says: a peer may lie, but not in a form that this
// agent would not write itself.
func (a Answer) check() error {
	if !slices.Contains([]State{Waiting, Prepared, Committed, Released}, a.State) {
		return fmt.Errorf("answer has state %.20q", string(a.State))
	}
	bound := a.State == Committed || a.State == Released
	switch {
	case !a.MemberID.valid():
		return errors.New("answer without a member ID")
	case a.Digest == "" || a.Nonce == "":
		return errors.New("answer without a digest or nonce")
	case (a.State == Waiting) != (a.Disk == ""), a.Disk != "" && !a.Disk.Valid():
		return fmt.Errorf("answer of state %s with disk ID %.40q", a.State, string(a.Disk))
	case bound != (len(a.Roster) > 0), a.Proposal != nil && a.State != Prepared:
		return fmt.Errorf("answer of state %s with %d seats in its roster and %d in its proposal", a.State, len(a.Roster), len(a.Proposal))
	case bound && a.Roster.Disk(string(a.MemberID)) != a.Disk:
		return errors.New("answer with a roster that names another disk for its sender")
	case bound && text(a.Roster.ClusterID(a.Digest)) != a.ClusterID:
		return errors.New("answer with a cluster ID that is not its roster's")
	case len(a.Members) > maxMembers, len(a.Roster) > maxMembers, len(a.Proposal) > maxMembers, len(a.Without) > maxMembers, len(a.Withdrawn) > maxMembers:
		return fmt.Errorf("answer with more than %d members", maxMembers)
	}
	for _, id := range a.Withdrawn {
		if !id.valid() {
			return errors.New("answer with a withdrawn cluster that has no ID")
		}
	}
	texts := append([]string{a.Digest, a.Nonce, a.Content}, a.Without...)
	for _, m := range a.Members {
		if !m.ID.valid() || len(m.PeerURLs) > maxMembers {
			return errors.New("answer with a member that has no ID")
		}
		texts = append(append(texts, m.Name), m.PeerURLs...)
	}
	seats := slices.Clone(a.Roster)
	for _, s := range a.Proposal {
		seats = append(seats, s.Seat)
		texts = append(texts, s.Nonce)
	}
	for _, s := range seats {
		if !ID(s.Member).valid() || !s.Disk.Valid() {
			return errors.New("answer with a seat that has no member or disk ID")
		}
	}
	for _, t := range texts {
		if len(t) > maxText || strings.ContainsFunc(t, unprintable) {
			return errors.New("answer with an overlong or unprintable string")
		}
	}
	return nil
}

// text is an ID in etcd's text form.
func text(id uint64) ID { return ID(strconv.FormatUint(id, 16)) }

// valid: 1 to 16 digits of lower hex, not zero-padded.
func (id ID) valid() bool {
	return id != "" && len(id) <= 16 && id[0] != '0' && strings.Trim(string(id), "0123456789abcdef") == ""
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// clean makes a foreign string safe to show.
func clean(s string) string { return cut(printable(s), maxText) }

func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unprintable(r) {
			return '?'
		}
		return r
	}, s)
}

func cut(s string, limit int) string { return s[:min(len(s), limit)] }

func cleanAll(list []string) []string {
	out := make([]string, 0, min(len(list), maxMembers))
	for _, s := range list[:min(len(list), maxMembers)] {
		out = append(out, clean(s))
	}
	return out
}
